import { z } from 'zod';
import { configSchema } from './config-schema.js';
import { reloadedBy } from './reload-fields.js';
import { members } from './schema-tree.js';

/** Returns the text of `docs/configuration.md`, which describes all keys of the schema. */
export function configurationDocument(): string {
  const sections = members(configSchema).filter(([, schema]) => members(schema).length > 0);
  const top = members(configSchema).filter(([, schema]) => members(schema).length === 0);
  return [
    '# Configuration',
    '',
    '<!-- Written by `npm run docs` from src/config/config-schema.ts. -->',
    '',
    ...INTRODUCTION,
    '',
    ...table(top.flatMap(([key, schema]) => leaves([key], schema))),
    ...sections.flatMap(([key, schema]) => [
      '',
      `## \`${key}\``,
      '',
      `${aboutOf(schema)} ${presenceOf(schema)}`,
      '',
      ...table(leaves([key], schema).filter(({ keys }) => keys.length > 1)),
    ]),
    '',
  ].join('\n');
}

const INTRODUCTION = [
  'A node reads one YAML file, `weir run --config FILE`. `weir config check FILE` prints all problems of a file. An annotated',
  'example is [`examples/weir.yaml`](../examples/weir.yaml).',
  '',
  '- Keys that are not listed here are refused. All problems of a file are reported together, each with its line.',
  `- \`\${NAME}\` in a value is replaced by that environment variable; a variable that is not set is refused. \`$\${\` stands for\n  \`\${\`. Inside \`{ }\` and \`[ ]\`, YAML requires quotes around such a value.`,
  '- The environment variable `WEIR_SECTION__KEY` overrides `section.key`, as in `WEIR_API__LISTEN` or',
  '  `WEIR_DATAPLANE__INTERFACES=lan0,wan0`: lists are separated by commas. Deeper keys have more parts:',
  '  `WEIR_API__TLS__CERT`.',
  '- Durations are written `500ms`, `60s`, `5m`, `2h` or `30d`.',
  '- A file that a key names must be a regular file or a link to a regular file, not a FIFO, a device or a directory. A secret has',
  '  at most 64 KiB, the configuration 1 MiB, certificates and keys of TLS 16 MiB, and `policy.file` 64 MiB.',
  '- If a section without defaults is missing, its part of the node does not run.',
  '- `weir config schema` prints the JSON Schema of the file, which is also in',
  '  [`schemas/config.schema.json`](../schemas/config.schema.json). [In your editor](policy.md#in-your-editor) shows how to use it:',
  `  \`# yaml-language-server: $schema=weir-config.schema.json\` as the first line. An editor also marks a value with \`\${NAME}\` where`,
  '  a number or one of several words is expected.',
  '- `weir config reload` and SIGHUP make a running node read the file again. The column *reload* has `yes` for a key whose change',
  '  is then in force, and `restart` for a key that is read at the start of the node only. A section that is added or removed needs',
  '  a restart. Environment variables keep the values of the start. Either all changes that need no restart are in force, or none.',
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

function table(rows: readonly Leaf[]): string[] {
  return [
    '| key | value | default | reload | |',
    '|---|---|---|---|---|',
    ...rows.map(
      ({ keys, schema }) =>
        `| \`${keys.join('.')}\` | ${formOf(schema)} | ${defaultOf(schema)} | ${reloadOf(keys, schema)} | ${aboutOf(schema)} |`,
    ),
  ];
}

function formOf(schema: z.core.$ZodType): string {
  return members(schema).length > 0 ? 'section' : String(metaOf(schema).form);
}

/** Returns `yes` if a reload puts a change of the key in force. A section has no answer of its own. */
function reloadOf(keys: readonly string[], schema: z.core.$ZodType): string {
  if (members(schema).length > 0) return '';
  return reloadedBy(keys.join('.')) === 'restart' ? 'restart' : 'yes';
}

function aboutOf(schema: z.core.$ZodType): string {
  const { description } = metaOf(schema);
  if (description === undefined) throw new Error('a key of the configuration has no description');
  return description;
}

function presenceOf(schema: z.core.$ZodType): string {
  return schema instanceof z.ZodOptional
    ? 'Without this section, the part does not run.'
    : 'Without this section, the defaults apply.';
}

function defaultOf(schema: z.core.$ZodType): string {
  const { shown } = metaOf(schema);
  if (typeof shown === 'string') return shown;
  if (!(schema instanceof z.ZodPrefault)) return 'required';
  const value: unknown = schema.def.defaultValue;
  if (value === null || (Array.isArray(value) && value.length === 0)) return 'none';
  return `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``;
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
