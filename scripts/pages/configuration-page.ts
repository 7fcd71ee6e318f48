import { z } from 'zod';
import { reloadedBy } from '#config/reload/reload-fields.js';
import { configSchema } from '#config/schema/config-schema.js';
import { members } from '#config/schema/schema-tree.js';

/** Returns the text of `docs/configuration.md`, which describes all keys of the schema. */
export function configurationPage(): string {
  const sections = members(configSchema).filter(([, schema]) => members(schema).length > 0);
  const top = members(configSchema).filter(([, schema]) => members(schema).length === 0);
  return [
    '# Configuration',
    '',
    '<!-- Written by `npm run docs` from src/config/schema/config-schema.ts. -->',
    '',
    ...INTRODUCTION,
    '',
    ...list(top.flatMap(([key, schema]) => leaves([key], schema))),
    ...sections.flatMap(([key, schema]) => [
      '',
      `## \`${key}\``,
      '',
      [aboutOf([key], schema), ...presenceOf(key, schema)].join(' '),
      '',
      ...list(leaves([key], schema).filter(({ keys }) => keys.length > 1)),
    ]),
    '',
  ].join('\n');
}

const INTRODUCTION = [
  'A node reads one YAML file, `weir run --config FILE`; [`examples/weir.yaml`](../examples/weir.yaml) is an example. `weir config check FILE`',
  'prints all problems of a file, each with its line. Other keys than those below are refused. Each line has the form of the value, its',
  'default, and `reload` if a reload applies a change; other changes need a restart. A key without default may be left out, unless it is',
  '`required`. A section that is left out has its defaults, unless its text says otherwise.',
  '',
  `- \`\${NAME}\` in a value is replaced by that environment variable, which must be set. \`$\${\` stands for \`\${\`. Inside \`{ }\` and`,
  '  `[ ]`, YAML requires quotes around such a value.',
  '- The environment variable `WEIR_SECTION__KEY` overrides `section.key`: `WEIR_API__LISTEN`, `WEIR_API__TLS__CERT`, or with commas for a list',
  '  `WEIR_DATAPLANE__INTERFACES=lan0,wan0`.',
  '- Durations are `500ms`, `60s`, `5m`, `2h` or `30d`.',
  '- A file is a regular file or a link to one. A secret has at most 64 KiB, the configuration 1 MiB, certificates and keys of TLS 16 MiB,',
  '  and `policy.file` 64 MiB.',
  '- [`schemas/config.schema.json`](../schemas/config.schema.json), or `weir config schema`, is for [editors](policy.md#in-your-editor). An editor',
  `  also marks \`\${NAME}\` where it expects a number or one of several words.`,
  '- `weir config reload` and SIGHUP apply all changes that need no restart, or none. An added or removed section needs a restart.',
  '  Environment variables keep the values of the start.',
];

type Leaf = { readonly keys: readonly string[]; readonly schema: z.core.$ZodType };

function leaves(keys: readonly string[], schema: z.core.$ZodType): Leaf[] {
  const inner = members(schema);
  const deeper = inner.flatMap(([key, member]) => leaves([...keys, key], member));
  return inner.length > 0 && !isOptionalGroup(schema) && keys.length > 1 ? deeper : [{ keys, schema }, ...deeper];
}

function isOptionalGroup(schema: z.core.$ZodType): boolean {
  return z.globalRegistry.get(schema)?.description !== undefined;
}

function list(rows: readonly Leaf[]): string[] {
  return rows.map(({ keys, schema }) => {
    const facts = [formOf(schema), ...defaultOf(schema), ...reloadOf(keys, schema)].join(', ');
    return `- \`${keys.join('.')}\`: ${facts}. ${aboutOf(keys, schema)}`;
  });
}

function formOf(schema: z.core.$ZodType): string {
  return members(schema).length > 0 ? 'section' : String(metaOf(schema).form);
}

/** Returns `reload` if a reload applies a change of the key; nothing for a section, whose keys differ. */
function reloadOf(keys: readonly string[], schema: z.core.$ZodType): string[] {
  return members(schema).length === 0 && reloadedBy(keys.join('.')) !== 'restart' ? ['reload'] : [];
}

function aboutOf(keys: readonly string[], schema: z.core.$ZodType): string {
  const { description } = metaOf(schema);
  if (description === undefined)
    throw new Error(`the configuration key ${keys.join('.')} has no description in its schema`);
  return description;
}

function presenceOf(key: string, schema: z.core.$ZodType): string[] {
  if (aboutOf([key], schema).includes('Without this section')) return [];
  return schema instanceof z.ZodOptional ? ['Without this section, the part does not run.'] : [];
}

/** Returns a text about the effect of a missing key; an empty list if a missing key has no effect. */
function defaultOf(schema: z.core.$ZodType): string[] {
  const { shown } = metaOf(schema);
  if (typeof shown === 'string') return shown === 'none' ? [] : [`default ${shown}`];
  if (!(schema instanceof z.ZodPrefault)) return ['required'];
  const value: unknown = schema.def.defaultValue;
  if (value === null || (Array.isArray(value) && value.length === 0) || members(schema).length > 0) return [];
  return [`default \`${typeof value === 'string' ? value : JSON.stringify(value)}\``];
}

/**
 * Returns the `meta` of a schema. If a wrapper schema (default, optional or nullable) has no `meta`, returns
 * the `meta` of the schema inside it.
 */
function metaOf(schema: z.core.$ZodType): z.core.GlobalMeta {
  const own = z.globalRegistry.get(schema);
  if (own !== undefined) return own;
  if (schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) {
    return metaOf(schema.def.innerType);
  }
  return {};
}
