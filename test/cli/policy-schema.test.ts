import { readdirSync, readFileSync } from 'node:fs';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { run } from './cli-run.js';

const folder = new URL('../../examples/policies/', import.meta.url);

describe('weir policy schema', () => {
  let validate: ValidateFunction;
  beforeAll(async () => {
    const { code, out, err } = await run(['policy', 'schema'], { WEIR_SERVER: 'http://127.0.0.1:1' });
    expect([code, err]).toEqual([0, '']);
    validate = new Ajv2020({ strict: true, allowUnionTypes: true }).compile(JSON.parse(out) as object);
  });

  it.each(readdirSync(folder, { encoding: 'utf8', recursive: true }).filter((file) => file.endsWith('.yaml')))(
    '`weir policy schema` prints, without a request to a node, a JSON Schema that accepts the example file %s',
    (file) => {
      expect(validate(parse(readFileSync(new URL(file, folder), 'utf8')))).toBe(true);
    },
  );

  it.each([
    ['an unknown field', { source_grups: [] }],
    ['a port beyond the range', ruleWith({ dst_ports: [65_536] })],
    ['a protocol number in quotes', ruleWith({ proto: '6' })],
    ['an action that does not exist', { default_policy: 'reject' }],
    ['a group without a mode in the singleton form', { source_groups: [{ id: 'a', sources: {} }] }],
    ['a group with a mode in the envelope form', { mode: 'audit', policy: { source_groups: [groupWith([])] } }],
  ])('`weir policy schema` prints a JSON Schema that refuses an invalid policy: %s', (_, document) => {
    expect(validate(document)).toBe(false);
  });

  it('`weir policy schema` prints only the schema of the policy form that --form names, and prints YAML with --output yaml', async () => {
    const { out } = await run(['policy', 'schema', '--form', 'envelope', '--output', 'yaml']);
    const envelope = new Ajv2020({ strict: true, allowUnionTypes: true }).compile(parse(out) as object);
    expect([envelope({ mode: 'audit', policy: {} }), envelope({})]).toEqual([true, false]);
    expect(validate({})).toBe(true);
  });
});

function ruleWith(match: object): object {
  return { source_groups: [groupWith([{ id: 'r', action: 'allow', match }])] };
}

function groupWith(rules: readonly object[]): object {
  return { id: 'a', mode: 'enforce', sources: { cidrs: ['10.0.0.0/8'] }, rules };
}
