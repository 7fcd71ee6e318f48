import { describe, expect, test } from 'vitest';
import { rig } from './rig.js';

const PUT = { body: { enabled: false } };
const PATH = '/api/v1/settings/performance-mode';

describe('Host header', () => {
  test.each([
    'localhost:8080',
    'localhost',
    '127.0.0.1:8080',
    '[::1]:8080',
    'LOCALHOST',
    'weir.example:443',
    '192.0.2.1',
  ])('an API request with the local or configured host name %s in the Host header is accepted', async (host) => {
    const { ask } = await rig({ hosts: ['weir.example', '192.0.2.1'] });
    expect((await ask('GET', '/health', { headers: { host } })).statusCode).toBe(200);
  });

  test.each([
    'evil.example',
    '127.0.0.1.evil.example',
    'localhost.evil.example:8080',
    '192.0.2.2',
    'a b',
    'x@localhost',
  ])(
    'an API request with the foreign host name %j in the Host header is refused by every route with 403',
    async (host) => {
      const { ask, node } = await rig({ hosts: ['weir.example'] });
      for (const [method, path] of [
        ['GET', '/health'],
        ['GET', '/api/v1/policy'],
        ['PUT', PATH],
        ['GET', '/nowhere'],
      ] as const) {
        const answer = await ask(method, path, { headers: { host }, ...(method === 'PUT' ? PUT : {}) });
        expect({ path, status: answer.statusCode, type: answer.json().type }).toEqual({
          path,
          status: 403,
          type: 'urn:weir:error:host_refused',
        });
      }
      expect(node.changes).toEqual([]);
    },
  );
});

describe('write request from a browser', () => {
  test.each([
    { origin: 'http://evil.example' },
    { origin: 'null' },
    { origin: 'http://localhost:9999' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ])(
    'a write request from a browser is refused with 403 if a header such as %j shows another origin',
    async (headers) => {
      const { ask, node } = await rig();
      const answer = await ask('PUT', PATH, { ...PUT, headers: headers });
      expect({ status: answer.statusCode, type: answer.json().type }).toEqual({
        status: 403,
        type: 'urn:weir:error:origin_refused',
      });
      expect(node.changes).toEqual([]);
    },
  );

  test('a write request from a browser is accepted if the page has the same origin as the API', async () => {
    const { ask } = await rig();
    const headers = { origin: 'http://localhost:8080', 'sec-fetch-site': 'same-origin' };
    expect((await ask('PUT', PATH, { ...PUT, headers })).statusCode).toBe(200);
  });
});

test('a client address with too many requests gets 429 and Retry-After, but requests to /health do not count', async () => {
  const { ask } = await rig({ limits: { requestsPerWindow: 2, requestWindowMs: 60_000 } });
  for (let times = 0; times < 5; times++) expect((await ask('GET', '/health')).statusCode).toBe(200);
  const statuses = [];
  for (let times = 0; times < 3; times++) statuses.push((await ask('GET', '/api/v1/policy')).statusCode);
  expect(statuses).toEqual([200, 200, 429]);
  const answer = await ask('GET', '/nowhere');
  expect({ status: answer.statusCode, type: answer.json().type }).toEqual({
    status: 429,
    type: 'urn:weir:error:rate_limited',
  });
  expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
});

test('every response has the headers nosniff, no-store and Content-Security-Policy, and no CORS header', async () => {
  const { ask } = await rig();
  for (const path of ['/health', '/api/v1/policy', '/nowhere']) {
    const { headers } = await ask('GET', path);
    expect({
      sniff: headers['x-content-type-options'],
      cache: headers['cache-control'],
      csp: headers['content-security-policy'],
      cors: headers['access-control-allow-origin'],
    }).toEqual({
      sniff: 'nosniff',
      cache: 'no-store',
      csp: "default-src 'none'; frame-ancestors 'none'",
      cors: undefined,
    });
  }
});

describe('request without a matching route', () => {
  test.each(['/', '/api', '/api/v1/policys', '/api/v2/policy', '/api/v1/policy/'])(
    'a request without a matching route gets 404 for the path %s',
    async (path) => {
      const { ask } = await rig();
      const answer = await ask('GET', path);
      expect({ status: answer.statusCode, type: answer.json().type }).toEqual({
        status: 404,
        type: 'urn:weir:error:no_such_path',
      });
    },
  );

  test.each([
    ['POST', '/health', 'GET, HEAD'],
    ['DELETE', '/api/v1/policy', 'GET, HEAD, PUT'],
    ['PATCH', '/api/v1/policies/x', 'DELETE, GET, HEAD, PUT'],
    ['OPTIONS', '/api/v1/policies', 'GET, HEAD, POST'],
    ['GET', '/api/v1/policy/explain', 'POST'],
    ['POST', '/api/v1/audit/findings', 'GET, HEAD'],
  ])(
    'a request without a matching route gets 405 and the allowed methods in the Allow header for the request %s %s',
    async (method, path, allow) => {
      const { ask } = await rig();
      const answer = await ask(method, path);
      expect({ status: answer.statusCode, allow: answer.headers.allow, type: answer.json().type }).toEqual({
        status: 405,
        allow,
        type: 'urn:weir:error:method_not_allowed',
      });
    },
  );

  test('a request without a matching route gets 400 or 414 for an empty name, an invalid percent escape or an overlong name in the path', async () => {
    const { ask } = await rig();
    const nameless = await ask('GET', '/api/v1/policies/by-name/');
    expect([nameless.statusCode, nameless.json().problems[0].pointer]).toEqual([400, '/name']);
    const broken = await ask('GET', '/api/v1/policies/%zz');
    expect([broken.statusCode, broken.json().type]).toEqual([400, 'urn:weir:error:invalid_url']);
    const endless = await ask('GET', `/api/v1/policies/${'x'.repeat(600)}`);
    expect([endless.statusCode, endless.json().type]).toEqual([414, 'urn:weir:error:url_too_long']);
  });
});

test.each(['dryrun=true', 'dry_run=yes', 'dry_run=true&dry_run=false', 'x'])(
  'the invalid query %s of a policy write is refused, so that a misspelt dry_run cannot cause a real write',
  async (query) => {
    const { ask, node } = await rig();
    const answer = await ask('PUT', `/api/v1/policy?${query}`, { body: '{}' });
    expect({ status: answer.statusCode, type: answer.json().type }).toEqual({
      status: 400,
      type: 'urn:weir:error:invalid_query',
    });
    expect(answer.json().problems[0].pointer).toBe(`?${query.split('=')[0]}`);
    expect(node.changes).toEqual([]);
  },
);
