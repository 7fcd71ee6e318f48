import { Validator } from '@seriousme/openapi-schema-validator';
import { beforeAll, describe, expect, test } from 'vitest';
import { mergeComponents } from '#api/openapi/openapi-components.js';
import { createApi } from '#api/server.js';
import { fakeManagement } from './fake-management.js';
import { rig } from './rig.js';

type Operation = {
  operationId: string;
  tags: string[];
  summary: string;
  security: unknown[];
  parameters?: readonly { name: string; in: string }[];
  responses: Record<string, { description: string; content?: object; headers?: object }>;
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

describe('OpenAPI document', () => {
  test('the OpenAPI document is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    expect(await validator.validate(structuredClone(document))).toEqual({ valid: true });
    expect(validator.version).toBe('3.1');
  });

  test('the OpenAPI document has exactly the endpoints of the specification and of the decisions in docs/contract.md', () => {
    expect(operations.map(({ method, path }) => `${method.toUpperCase()} ${path}`).sort()).toEqual(
      [
        'GET /health',
        'GET /ready',
        'GET /metrics',
        'GET /openapi/service-v1.json',
        'GET /api/v1/node',
        'GET /api/v1/stats',
        'GET /api/v1/stats/series',
        'GET /api/v1/policy',
        'PUT /api/v1/policy',
        'POST /api/v1/policy/explain',
        'POST /api/v1/policy/diff',
        'POST /api/v1/policy/ask',
        'POST /api/v1/policy/lint',
        'GET /api/v1/policy/hits',
        'GET /api/v1/policies',
        'POST /api/v1/policies',
        'GET /api/v1/policies/{id}',
        'PUT /api/v1/policies/{id}',
        'DELETE /api/v1/policies/{id}',
        'POST /api/v1/policies/{id}/activate',
        'GET /api/v1/policies/{id}/history',
        'GET /api/v1/policies/{id}/history/{revision}',
        'POST /api/v1/policies/{id}/rollback',
        'GET /api/v1/policy/pending',
        'POST /api/v1/policy/pending/confirm',
        'POST /api/v1/policy/pending/revert',
        'GET /api/v1/policies/{id}/source-groups/{group_id}',
        'PUT /api/v1/policies/{id}/source-groups/{group_id}',
        'DELETE /api/v1/policies/{id}/source-groups/{group_id}',
        'GET /api/v1/policies/{id}/source-groups/{group_id}/members',
        'GET /api/v1/policies/by-name/{name}',
        'PUT /api/v1/policies/by-name/{name}',
        'GET /api/v1/cluster',
        'GET /api/v1/cluster/nodes',
        'DELETE /api/v1/cluster/nodes/{id}',
        'POST /api/v1/cluster/join-tokens',
        'POST /api/v1/cluster/init',
        'POST /api/v1/cluster/recover',
        'GET /api/v1/config/reload',
        'POST /api/v1/config/reload',
        'GET /api/v1/settings/performance-mode',
        'PUT /api/v1/settings/performance-mode',
        'GET /api/v1/settings/tls-intercept-ca',
        'PUT /api/v1/settings/tls-intercept-ca',
        'DELETE /api/v1/settings/tls-intercept-ca',
        'POST /api/v1/settings/tls-intercept-ca/generate',
        'GET /api/v1/settings/tls-intercept-ca/cert',
        'GET /api/v1/assertions',
        'PUT /api/v1/assertions',
        'GET /api/v1/assertions/{id}',
        'PUT /api/v1/assertions/{id}',
        'DELETE /api/v1/assertions/{id}',
        'GET /api/v1/integrations',
        'POST /api/v1/integrations',
        'GET /api/v1/integrations/{name}',
        'PUT /api/v1/integrations/{name}',
        'DELETE /api/v1/integrations/{name}',
        'GET /api/v1/integrations/{name}/status',
        'GET /api/v1/tokens',
        'POST /api/v1/tokens',
        'DELETE /api/v1/tokens/{id}',
        'GET /api/v1/session',
        'POST /api/v1/session',
        'DELETE /api/v1/session',
        'POST /api/v1/session/link',
        'GET /api/v1/flows',
        'GET /api/v1/flows/seen',
        'DELETE /api/v1/flows',
        'GET /api/v1/dns-cache',
        'GET /api/v1/audit/findings',
        'GET /api/v1/audit/findings/local',
        'GET /api/v1/wiretap/stream',
        'POST /api/v1/support/sysdump/cluster',
        'POST /api/v1/support/sysdump/local',
        'GET /api/v1/debug/statecharts',
        'GET /api/v1/debug/statecharts/definitions',
        'GET /api/v1/debug/statecharts/stream',
      ].sort(),
    );
  });

  test('the OpenAPI document gives each operation a unique id, one tag, a summary and a security requirement', () => {
    const ids = operations.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
    expect(
      operations.filter(
        ({ operation: { operationId, tags, summary, security } }) =>
          !/^[a-z][A-Za-z]+$/.test(operationId) || tags.length !== 1 || summary === '' || security === undefined,
      ),
    ).toEqual([]);
  });

  test('the OpenAPI document describes every response, and describes every error as a problem document, except for /ready', () => {
    const answers = operations.flatMap(({ operation }) => Object.entries(operation.responses));
    expect(answers.filter(([, { description }]) => description === 'Default Response' || description === '')).toEqual(
      [],
    );
    const errors = answers.filter(([status]) => Number(status) >= 400);
    const bodies = new Set(errors.flatMap(([, { content }]) => Object.keys(content ?? {})));
    // The route /ready returns status 503 with the readiness report, as JSON or text, instead of a problem
    // document.
    expect([...bodies].sort()).toEqual(['application/json', 'application/problem+json', 'text/plain']);
    for (const { operation, path } of operations.filter(({ operation: { security } }) => security.length > 0)) {
      expect({ path, has: ['400', '401', '429', '500'].every((status) => status in operation.responses) }).toEqual({
        path,
        has: true,
      });
    }
  });

  test('the OpenAPI document has the schema of every policy body, although the API routes for policies do not parse that body', () => {
    const schemaOf = (path: string, method: string) => document.paths[path]?.[method]?.requestBody;
    const reference = (name: string) => ({ $ref: `#/components/schemas/${name}` });
    const holding = (schema: unknown) => ({ required: true, content: { 'application/json': { schema } } });
    const body = (name: string) => holding(reference(name));
    const either = holding({ anyOf: [reference('PolicyEnvelope'), reference('PolicyConfig')] });
    expect([
      schemaOf('/api/v1/policy', 'put'),
      schemaOf('/api/v1/policies', 'post'),
      schemaOf('/api/v1/policies/{id}', 'put'),
      schemaOf('/api/v1/policies/by-name/{name}', 'put'),
    ]).toEqual([body('PolicyConfig'), body('PolicyEnvelope'), either, either]);
  });

  test('the OpenAPI document describes a union type without a discriminator as anyOf', () => {
    const types = (name: string) =>
      ((document.components.schemas[name]?.anyOf ?? []) as { type?: string; $ref?: string }[]).map(
        ({ type, $ref }) => type ?? $ref,
      );
    expect(types('TlsNameMatch')).toEqual(['string', 'array', '#/components/schemas/NameMatch']);
    expect(types('PortSpec')).toEqual(['integer', 'string']);
    expect(types('ProtoValue')).toEqual(['string', 'integer']);
  });

  test('the OpenAPI document has no duplicate, unused or missing component schema', () => {
    const names = Object.keys(document.components.schemas);
    expect(names.filter((name) => name.endsWith('Input'))).toEqual([]);
    const used = [...JSON.stringify(document).matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(
      ([, name]) => name ?? '',
    );
    expect([...new Set(used)].sort()).toEqual(names.sort());
  });

  test('the OpenAPI document lists the headers of each response, such as ETag and Retry-After', () => {
    const headers = (path: string, method: string, status: string) =>
      Object.keys(document.paths[path]?.[method]?.responses[status]?.headers ?? {});
    expect(headers('/api/v1/policies', 'post', '201')).toEqual([
      'ETag',
      'Location',
      'Weir-Generation',
      'Weir-Warnings',
      'Weir-Revision',
      'Weir-Nodes',
    ]);
    expect(headers('/api/v1/policy', 'get', '200')).toEqual(['ETag', 'Weir-Generation', 'Weir-Warnings']);
    expect(headers('/api/v1/policy', 'get', '401')).toEqual(['WWW-Authenticate']);
    expect(headers('/api/v1/policy', 'get', '429')).toEqual(['Retry-After']);
  });

  test('the OpenAPI document lists the header Weir-Min-Generation for exactly the reads that need a token', () => {
    const named = operations.filter(({ operation: { parameters = [] } }) =>
      parameters.some(({ name, in: place }) => place === 'header' && name === 'weir-min-generation'),
    );
    const reads = operations.filter(({ method, operation: { security } }) => method === 'get' && security.length > 0);
    expect(named).toEqual(reads);
  });

  test('the OpenAPI document has no member for a token, key or secret in the schema of a response', () => {
    const shown = ['Integration', 'WrittenIntegration', 'TlsInterceptCa', 'WrittenTlsInterceptCa', 'Token'].map(
      (name) => Object.keys(document.components.schemas[name]?.properties ?? {}),
    );
    expect(shown.flat().filter((name) => /token|key|secret/.test(name))).toEqual([]);
  });
});

describe('mergeComponents', () => {
  const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` });

  test('`mergeComponents` keeps two OpenAPI schemas for one component if the input and output schema differ, directly or in a referenced schema', () => {
    const document = {
      paths: {
        '/x': { put: { body: ref('AInput'), answer: ref('A') }, get: { body: ref('CInput'), answer: ref('C') } },
      },
      components: {
        schemas: {
          A: { type: 'object', properties: { b: ref('B') } },
          AInput: { type: 'object', properties: { b: ref('BInput') } },
          B: { type: 'string' },
          BInput: { type: 'integer' },
          C: { type: 'object', properties: { self: ref('C') } },
          CInput: { type: 'object', properties: { self: ref('CInput') } },
          Unused: { type: 'null' },
        },
      },
    };
    const { A, AInput, B, BInput, C } = document.components.schemas;
    expect(mergeComponents(document)).toEqual({
      paths: { '/x': { put: { body: ref('AInput'), answer: ref('A') }, get: { body: ref('C'), answer: ref('C') } } },
      components: { schemas: { A, AInput, B, BInput, C } },
    });
  });
});

test('the route of the OpenAPI document returns an ETag, and 304 to a request with that ETag in If-None-Match', async () => {
  const { ask } = await rig();
  const first = await ask('GET', '/openapi/service-v1.json', { token: null });
  const again = await ask('GET', '/openapi/service-v1.json', {
    headers: { 'if-none-match': String(first.headers.etag) },
  });
  expect([first.statusCode, again.statusCode, again.body]).toEqual([200, 304, '']);
});
