import { expect, test } from 'vitest';
import { createApi } from '#api/server.js';
import { fakeManagement, TOKENS } from './fake-management.js';
import { concrete, rig } from './rig.js';

const described = await createApi(fakeManagement(), { version: '0.1.0' });
const document = (await described.inject({ url: '/openapi/service-v1.json' })).json<{
  paths: Record<string, Record<string, { 'x-weir-role'?: string }>>;
}>();
const routes = Object.entries(document.paths).flatMap(([path, operations]) =>
  Object.entries(operations).map(([method, { 'x-weir-role': role }]) => ({
    method: method.toUpperCase(),
    path: concrete(path),
    needs: role ?? 'nothing',
  })),
);

await described.close();

test('the API requires no token for exactly these routes (D36): the OpenAPI document, /health, /ready, /metrics, and the routes that sign in and out', () => {
  expect(routes.filter(({ needs }) => needs === 'nothing').map(({ method, path }) => `${method} ${path}`)).toEqual([
    'GET /openapi/service-v1.json',
    'GET /health',
    'GET /ready',
    'GET /metrics',
    'POST /api/v1/session',
    'GET /api/v1/session',
    'DELETE /api/v1/session',
  ]);
});

test('the API requires the role admin for all requests except GET requests, sign-in links and questions about policies, which also accept readonly', () => {
  const roleOf = (method: string, path: string) =>
    method === 'GET' || /\/(?:policy\/(?:explain|diff|ask|lint)|session\/link)$/.test(path) ? 'readonly' : 'admin';
  const guarded = routes.filter(({ needs }) => needs !== 'nothing');
  expect(guarded).toEqual(guarded.map(({ method, path }) => ({ method, path, needs: roleOf(method, path) })));
  expect(guarded.length).toBeGreaterThan(25);
});

test.each(routes.filter(({ method, needs }) => method === 'GET' && needs === 'nothing'))(
  'the API route $method $path returns 200 without a token',
  async (route) => {
    const { ask } = await rig();
    expect((await ask(route.method, route.path, { token: null })).statusCode).toBe(200);
  },
);

test.each(routes.filter(({ needs }) => needs !== 'nothing'))(
  'the API route $method $path requires a valid token of the role $needs',
  async (route) => {
    const { method, path, needs } = route;
    const own = await rig({ limits: { failedLoginsPerWindow: 100 } });
    const asked = async (token: string | null) => {
      const answer = await own.ask(method, path, { token });
      return {
        statusCode: answer.statusCode,
        challenge: answer.headers['www-authenticate'],
        type: JSON.parse(answer.body || '{}').type,
      };
    };
    expect(await asked(null)).toEqual({
      statusCode: 401,
      challenge: 'Bearer realm="weir"',
      type: 'urn:weir:error:unauthenticated',
    });
    const invalid = {
      statusCode: 401,
      challenge: 'Bearer realm="weir", error="invalid_token"',
      type: 'urn:weir:error:invalid_token',
    };
    expect(await asked('garbage')).toEqual(invalid);
    expect(await asked(TOKENS.expired)).toEqual(invalid);
    const asReader = await asked(TOKENS.readonly);
    if (needs === 'admin') {
      expect(asReader).toEqual({
        statusCode: 403,
        challenge: 'Bearer realm="weir", error="insufficient_scope"',
        type: 'urn:weir:error:forbidden',
      });
      expect(own.node.changes).toEqual([]);
    } else expect([401, 403]).not.toContain(asReader.statusCode);
    expect([401, 403]).not.toContain((await asked(TOKENS.admin)).statusCode);
  },
);

test('an expired token is refused with a detail text that names the expiry as the reason', async () => {
  const { ask } = await rig();
  const answer = await ask('GET', '/api/v1/policy', { token: TOKENS.expired });
  expect(answer.json()).toEqual({
    type: 'urn:weir:error:invalid_token',
    title: 'Invalid token',
    status: 401,
    detail: 'the token has expired',
    error: 'the token has expired.',
  });
});

test('a HEAD request requires the same role as a GET request for the same path', async () => {
  const { ask } = await rig();
  expect((await ask('HEAD', '/api/v1/policy', { token: null })).statusCode).toBe(401);
  const answer = await ask('HEAD', '/api/v1/policy', { token: TOKENS.readonly });
  expect({ status: answer.statusCode, body: answer.body }).toEqual({ status: 200, body: '' });
});

test.each(['Basic YWRtaW46YWRtaW4=', 'Bearer', 'Bearer a b', `bearer${TOKENS.admin}`])(
  'the malformed Authorization header %j is refused with 401',
  async (authorization) => {
    const { ask } = await rig();
    const answer = await ask('GET', '/api/v1/policy', { token: null, headers: { authorization } });
    expect(answer.statusCode).toBe(401);
  },
);

test('a token in the query string is refused with 400, even if the Authorization header has a valid token', async () => {
  const { ask } = await rig();
  for (const query of ['token=x', 'access_token=x', 'q=eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2ln']) {
    const answer = await ask('GET', `/api/v1/policy?${query}`);
    expect({ query, status: answer.statusCode, type: answer.json().type }).toEqual({
      query,
      status: 400,
      type: 'urn:weir:error:token_in_query',
    });
  }
});

test('too many failed logins from one address get 429, but a valid token from that address is still accepted', async () => {
  const own = await rig({ limits: { failedLoginsPerWindow: 2 } });
  const statuses: number[] = [];
  for (let attempt = 0; attempt < 4; attempt++) {
    statuses.push((await own.ask('GET', '/api/v1/policy', { token: 'guess' })).statusCode);
  }
  expect(statuses).toEqual([401, 401, 429, 429]);
  const answer = await own.ask('GET', '/api/v1/policy', { token: 'guess' });
  expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
  expect(answer.json().type).toBe('urn:weir:error:too_many_failed_logins');
  expect((await own.ask('GET', '/api/v1/policy')).statusCode).toBe(200);
});

test('a request without a token does not count as a failed login', async () => {
  const own = await rig({ limits: { failedLoginsPerWindow: 1 } });
  for (let attempt = 0; attempt < 3; attempt++) await own.ask('GET', '/api/v1/policy', { token: null });
  expect((await own.ask('GET', '/api/v1/policy', { token: 'guess' })).statusCode).toBe(401);
});
