import { z } from 'zod';
import { configSchema } from './config-schema.js';

/** Keywords of `meta` that the JSON Schema omits, because only `docs/configuration.md` uses them. */
const OF_PAGE = ['form', 'shown'];

/**
 * Returns the JSON Schema of the configuration file, of draft 2020-12. The schema describes the shape of the
 * file as it is written; a value with `${NAME}` is text. `weir config check` also tests rules between keys.
 */
export function configJsonSchema(): object {
  return {
    $id: 'urn:weir:config:1',
    title: 'Configuration of a Weir node',
    ...z.toJSONSchema(configSchema, {
      io: 'input',
      override: ({ jsonSchema }) => {
        // Omit the default of a key with `shown`: it depends on the machine, or JSON has no equal form of it.
        if (jsonSchema.shown !== undefined) delete jsonSchema.default;
        // zod adds the format `starts_with`, which JSON Schema does not define. The pattern has the same
        // effect.
        if (jsonSchema.format === 'starts_with') delete jsonSchema.format;
        for (const keyword of OF_PAGE) delete jsonSchema[keyword];
      },
    }),
  };
}
