import { Validator } from '@seriousme/openapi-schema-validator';
import { beforeAll, describe, expect, test } from 'vitest';
import { createApi } from '#api/server.js';
import { fakeManagement } from './fake-management.js';

type Operation = {
  operationId: string;
  tags: string[];
  summary: string;
  security: unknown[];
  responses: Record<string, unknown>;
  requestBody?: unknown;
};
type Document = {
  openapi: string;
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Record<string, unknown>> };
};

let document: Document;
let operations: { path: string; method: string; operation: Operation }[];

beforeAll(async () => {
  const api = await createApi(fakeManagement(), { version: '0.1.0' });
  const answer = await api.inject({ url: '/openapi/service-v1.json' });
  await api.close();
  document = answer.json();
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
});

describe('the OpenAPI document', () => {
  test('is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    expect(await validator.validate(structuredClone(document))).toEqual({ valid: true });
    expect(validator.version).toBe('3.1');
  });
});
