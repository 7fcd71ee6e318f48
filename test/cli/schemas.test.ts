import { readFileSync } from 'node:fs';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { configJsonSchema } from '#config/schema/config-json-schema.js';
import { configSchema } from '#config/schema/config-schema.js';
import { members } from '#config/schema/schema-tree.js';
import { policyJsonSchema } from '#policy/document/json-schema.js';
import { run } from './cli-run.js';

type Schema = {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Schema>>;
  readonly description?: string;
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
};

const file = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const published = (name: string) => JSON.parse(file(`schemas/${name}`)) as Schema;
const compiled = (schema: object) => new Ajv2020({ strict: true, allowUnionTypes: true }).compile(schema);

/** Returns the paths of the fields that have no description, in the schema and in its definitions. */
function undescribed(schema: Schema, path: string, root: Schema): string[] {
  const describes = ({ description, $ref = '' }: Schema): boolean =>
    (description ?? root.$defs?.[$ref.replace('#/$defs/', '')]?.description ?? '') !== '';
  return [
    ...Object.entries(schema.properties ?? {}).flatMap(([name, field]) => [
      ...(describes(field) ? [] : [`${path}.${name}`]),
      ...undescribed(field, `${path}.${name}`, root),
    ]),
    ...(schema.anyOf ?? []).flatMap((choice) => undescribed(choice, path, root)),
    ...(schema.items === undefined ? [] : undescribed(schema.items, `${path}[]`, root)),
    ...Object.entries(schema.$defs ?? {}).flatMap(([name, definition]) => undescribed(definition, name, root)),
  ];
}

describe('published JSON Schema', () => {
  it.each([
    ['config.schema.json', configJsonSchema()],
    ['policy.schema.json', policyJsonSchema('any')],
  ])('the published file schemas/%s equals the JSON Schema that the command prints', (name, schema) => {
    expect(published(name), 'run: npm run docs').toEqual(JSON.parse(JSON.stringify(schema)));
  });

  it.each(['config.schema.json', 'policy.schema.json'])(
    'the published file schemas/%s has a description for every field',
    (name) => {
      const schema = published(name);
      expect(undescribed(schema, '', schema)).toEqual([]);
      expect(undescribed({ properties: { a: { items: { properties: { b: {} } } } } }, '', {})).toEqual([
        '.a',
        '.a[].b',
      ]);
    },
  );

  it.each(['config.schema.json', 'policy.schema.json'])(
    'the published file schemas/%s names its JSON Schema version and has an id that no other schema has',
    (name) => {
      expect(published(name)).toMatchObject({
        $schema: 'https://json-schema.org/draft/2020-12/schema',
        $id: expect.stringMatching(/^urn:weir:/),
      });
    },
  );
});

const DNS = { listen: ['10.1.0.1:53'], upstreams: ['192.0.2.53:53'] };

describe('weir config schema', () => {
  let validate: ValidateFunction;
  beforeAll(async () => {
    const { code, out, err } = await run(['config', 'schema']);
    expect([code, err]).toEqual([0, '']);
    validate = compiled(JSON.parse(out) as object);
  });

  it('`weir config schema` prints a JSON Schema that accepts the example configuration, and has every key of the configuration', () => {
    expect(validate(parse(file('examples/weir.yaml')))).toBe(true);
    const schema = configJsonSchema() as Schema;
    const keys = (of: Schema): string[] => Object.keys(of.properties ?? {});
    expect(keys(schema)).toEqual(members(configSchema).map(([key]) => key));
    for (const [key, section] of members(configSchema))
      expect([key, keys(schema.properties?.[key] ?? {})]).toEqual([key, members(section).map(([name]) => name)]);
  });

  it.each([
    ['a file without a version', {}],
    ['an unknown section', { version: 1, dataplan: {} }],
    ['an unknown key', { version: 1, api: { lissten: '127.0.0.1:80' } }],
    ['a number out of its range', { version: 1, dns: { ...DNS, cache_size: 5_000 } }],
    ['a fraction out of its range', { version: 1, dataplane: { interfaces: ['lan0'], flow_share: 2 } }],
    ['a duration without a unit', { version: 1, wiretap: { replay: '30' } }],
    ['a word that is not in the list', { version: 1, log: { level: 'loud' } }],
    ['a dataplane without interfaces', { version: 1, dataplane: {} }],
  ])('`weir config schema` prints a JSON Schema that refuses an invalid configuration: %s', (_, document) => {
    expect(validate(document)).toBe(false);
  });

  it('`weir config schema` prints a JSON Schema without a default that depends on the machine', () => {
    const { properties } = published('config.schema.json');
    expect(properties?.node?.properties?.id).not.toHaveProperty('default');
    expect(JSON.stringify(published('config.schema.json'))).not.toMatch(/"(form|shown)":/);
  });
});
