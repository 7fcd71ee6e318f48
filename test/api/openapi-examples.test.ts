import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { createApi } from '#api/server.js';
import { fakeManagement } from './fake-management.js';

type Schema = { readonly [key: string]: unknown };

const described = await createApi(fakeManagement(), { version: '0.1.0' });
const document = (await described.inject({ url: '/openapi/service-v1.json' })).json<Schema>();
await described.close();

/** Returns the JSON pointer and the examples of every schema in the document that has examples. */
function withExamples(value: unknown, pointer: string): [pointer: string, examples: readonly unknown[]][] {
  if (typeof value !== 'object' || value === null) return [];
  const { examples, schema } = value as { readonly examples?: unknown; readonly schema?: unknown };
  const own = Array.isArray(examples) && schema === undefined ? [[pointer, examples] as [string, unknown[]]] : [];
  const below = Object.entries(value).flatMap(([key, member]) =>
    key === 'examples'
      ? []
      : withExamples(member, `${pointer}/${encodeURIComponent(key.replaceAll('~', '~0').replaceAll('/', '~1'))}`),
  );
  return [...own, ...below];
}

describe('examples of the OpenAPI document', () => {
  const ajv = new Ajv2020({ strict: false, formats: { 'date-time': true, uuid: true, uri: true } });
  ajv.addSchema({ ...document, $id: 'weir' });
  const found = withExamples(document, '');

  test('the examples of the OpenAPI document exist in more than 30 schemas', () => {
    expect(found.length).toBeGreaterThan(30);
  });

  test.each(found)(
    'the examples of the OpenAPI document are valid for their schema at the JSON pointer %s',
    (pointer, examples) => {
      const validate = ajv.compile({ $ref: `weir#${pointer}` });
      const faults = examples
        .filter((example) => !validate(example))
        .map((example) => ({ example, errors: validate.errors }));
      expect(faults).toEqual([]);
    },
  );
});
