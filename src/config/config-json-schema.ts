import { z } from 'zod';
import { configSchema } from './config-schema.js';

/** Keywords of `meta` that only `docs/configuration.md` uses. */
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
        // `shown` replaces a default that depends on the machine, or that JSON cannot write as the page does.
        if (jsonSchema.shown !== undefined) delete jsonSchema.default;
        // zod names a format for `startsWith`; JSON Schema has no such format, and the pattern says the same.
        if (jsonSchema.format === 'starts_with') delete jsonSchema.format;
        for (const keyword of OF_PAGE) delete jsonSchema[keyword];
      },
    }),
  };
}
