import { describe, expect, test } from 'vitest';
import { CERTIFICATE, KEY } from './certificate.js';
import { concrete, rig } from './rig.js';

type Parameter = { readonly name: string; readonly in: string; readonly schema: { readonly type?: string } };
type Operation = {
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: object;
};
type Problem = { readonly type: string; readonly problems?: readonly { readonly pointer: string }[] };
type Document = { readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>> };

const cluster = { kind: 'kubernetes', api_server_url: 'https://kube.example.com:6443', ca_cert_pem: CERTIFICATE };
const integration = { ...cluster, service_account_token: 'secret' };
/** Valid bodies, because Fastify validates the body of a request before its query. */
const BODIES: Readonly<Record<string, object>> = {
  '/api/v1/settings/performance-mode': { enabled: true },
  '/api/v1/assertions': { assertions: [] },
  '/api/v1/assertions/{id}': { never: {} },
  '/api/v1/settings/tls-intercept-ca': { cert_pem: CERTIFICATE, key_pem: KEY },
  '/api/v1/integrations': { name: 'prod', ...integration },
  '/api/v1/integrations/{name}': integration,
  '/api/v1/cluster/recover': { keep: 'store' },
  '/api/v1/policies/{id}/rollback': { revision: 1 },
  '/api/v1/tokens': { subject: 'alice', role: 'readonly' },
};
const NO_NUMBERS = [
  '1e2',
  '0x10',
  '%2B10',
  '+10',
  '%2010',
  '10%20',
  '010',
  '1.0',
  '1_000',
  '-1',
  '%D9%A3',
  '١٠',
  'NaN',
  'Infinity',
];
const NO_BOOLEANS = ['1', '0', 'yes', 'TRUE', 'true%20', 'null'];

const described = await rig();
const document = (await described.ask('GET', '/openapi/service-v1.json')).json<Document>();
const routes = Object.entries(document.paths).flatMap(([path, operations]) =>
  Object.entries(operations).flatMap(([method, { parameters = [], requestBody }]) => {
    const all = parameters.filter((parameter) => parameter.in === 'query');
    const body = requestBody === undefined ? {} : { body: BODIES[path] ?? {} };
    const [name, url] = [method.toUpperCase(), concrete(path)];
    return all.length === 0 ? [] : [{ route: `${name} ${url}`, method: name, url, body, all }];
  }),
);
const parameters = routes.flatMap(({ all }) => all);

describe('query parameters', () => {
  test('the OpenAPI document describes query parameters of all types', () => {
    expect(new Set(parameters.map(({ schema }) => schema.type))).toEqual(
      new Set(['string', 'integer', 'boolean', undefined]),
    );
    expect(parameters.filter(({ schema }) => schema.type === 'integer').map(({ name }) => name)).toEqual(
      expect.arrayContaining(['limit', 'min_bytes', 'generation', 'rollout_share']),
    );
    expect(routes.length).toBeGreaterThan(30);
  });

  test.each(routes)(
    'query parameters of the API route $route are refused with 400 if they are empty or malformed, and the request changes nothing',
    async ({ method, url, body, all }) => {
      const { ask, node } = await rig({ limits: { requestsPerWindow: 100_000 } });
      for (const { name, schema } of all) {
        const odd = [
          '=',
          ...(schema.type === 'integer' ? NO_NUMBERS.map((value) => `=${value}`) : []),
          ...(schema.type === 'boolean' ? NO_BOOLEANS.map((value) => `=${value}`) : ['']),
        ];
        for (const value of odd) {
          const query = `${name}${value}`;
          const answer = await ask(method, `${url}?${query}`, body);
          const { type: code, problems } = answer.json<Problem>();
          expect({ query, status: answer.statusCode, code, pointer: problems?.[0]?.pointer }).toEqual({
            query,
            status: 400,
            code: 'urn:weir:error:invalid_query',
            pointer: `?${name}`,
          });
        }
      }
      expect(node.changes).toEqual([]);
    },
  );

  test.each([
    ['DELETE', '/api/v1/flows?min_bytes=', '?min_bytes: Must be a whole number in decimal digits.'],
    ['DELETE', '/api/v1/flows?all=', '?all: Must be true or false.'],
    ['DELETE', '/api/v1/flows?rule=', '?rule: Must not be empty.'],
    ['DELETE', '/api/v1/flows?rule=a&rule=', '?rule: Must not be empty.'],
    ['DELETE', '/api/v1/flows?min_bytes', '?min_bytes: This parameter must have a value.'],
    ['DELETE', '/api/v1/flows?rule', '?rule: This parameter must have a value.'],
    ['GET', '/api/v1/flows?limit=1e2', '?limit: Must be a whole number from 1 to 1000.'],
    ['GET', '/api/v1/flows?limit=1001', '?limit: Must be a whole number from 1 to 1000.'],
    [
      'POST',
      '/api/v1/policy/pending/confirm?generation=',
      '?generation: Must be a whole number from 1 in decimal digits.',
    ],
    ['GET', '/api/v1/wiretap/stream?replay=', '?replay: Must be a duration such as 10s or 500ms.'],
    ['GET', '/api/v1/wiretap/stream?fold=49ms', '?fold: Must be a duration from 50ms to 10s, such as 250ms.'],
    ['GET', '/api/v1/wiretap/stream?fold=11s', '?fold: Must be a duration from 50ms to 10s, such as 250ms.'],
  ])(
    'the API request %s %s is refused with a sentence about the invalid value of its query parameter',
    async (method, url, detail) => {
      const { ask, node } = await rig();
      const answer = await ask(method, url);
      expect([answer.statusCode, answer.json().detail, node.changes]).toEqual([400, detail, []]);
    },
  );

  test('a numeric query parameter must consist of decimal digits, and a boolean query parameter may have no value', async () => {
    const { ask, node } = await rig();
    expect((await ask('DELETE', '/api/v1/flows?min_bytes=10&foreign')).statusCode).toBe(200);
    expect(node.changes).toMatchObject([{ call: 'traffic.cutFlows', with: { minBytes: 10, foreign: true } }]);
  });
});

test.each(['', '1e2', '0x10', '+10', '010', '-1', '1, 2'])(
  'the header Weir-Min-Generation is refused with 400 if it is %j',
  async (value) => {
    const { ask } = await rig();
    const answer = await ask('GET', '/api/v1/policy', { headers: { 'weir-min-generation': value } });
    expect([answer.statusCode, answer.json().type]).toEqual([400, 'urn:weir:error:invalid_header']);
  },
);
