import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { policyJsonSchema } from '#policy/document/json-schema.js';
import { policyPage } from '../../scripts/pages/policy-page.js';

const read = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
const page = read('docs/policy.md');

test('docs/policy.md contains the current fields of the JSON Schema and the current example files', () => {
  expect(policyPage(page, (file) => read(`examples/policies/${file}`))).toBe(page);
});

test('docs/policy.md has a list or a row for every definition of the JSON Schema', () => {
  const named = Object.keys(policyJsonSchema('any').$defs ?? {}).filter(
    (name) => !page.includes(`<!-- fields ${name} -->`) && !page.includes(`\n| ${name} |`),
  );
  // docs/policy.md has no lists for the two envelope types. A sentence on the page says that their fields
  // are those of the singleton form without `mode`.
  expect(named).toEqual(['EnvelopePolicyConfig', 'EnvelopeSourceGroupConfig']);
});

test('docs/policy.md contains or links every file of examples/policies', () => {
  const folder = new URL('../../examples/policies', import.meta.url);
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.yaml'));
  expect(files.length).toBeGreaterThan(20);
  const isNamed = (file: string): boolean =>
    page.includes(`<!-- example ${file} -->`) || page.includes(`](../examples/policies/${file})`);
  expect(files.filter((file) => !isNamed(file))).toEqual([]);
});

test('every field of the JSON Schema has a description', () => {
  const bare = Object.entries(policyJsonSchema('any').$defs ?? {}).flatMap(([name, { properties = {} }]) =>
    Object.entries(properties)
      .filter(([, { description, $ref }]) => description === undefined && $ref === undefined)
      .map(([field]) => `${name}.${field}`),
  );
  expect(bare).toEqual([]);
});
