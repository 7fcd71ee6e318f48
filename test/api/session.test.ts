import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { request as requestTls } from 'node:https';
import { text } from 'node:stream/consumers';
import type { LightMyRequestResponse } from 'fastify';
import { decodeJwt } from 'jose';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { CERTIFICATE, KEY } from './certificate.js';
import { fakeManagement, TOKENS } from './fake-management.js';
import { type ApiRig, listening, rig } from './rig.js';
import { openWebSocket } from './websocket-client.js';

const PATH = '/api/v1/session';
const LINK = `${PATH}/link`;
const POLICY = '/api/v1/policy';
const SETTING = '/api/v1/settings/performance-mode';
const NAME = 'weir-session-localhost-8080';
const REMOVED = `${NAME}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict`;
const STREAMS = [
  ['/api/v1/wiretap/stream', 'weir.wiretap.v1'],
  ['/api/v1/debug/statecharts/stream', 'weir.statecharts.v1'],
] as const;

const shown = (answer: LightMyRequestResponse) => ({
  status: answer.statusCode,
  type: answer.body === '' ? undefined : answer.json<{ type?: string } | null>()?.type,
});
const problem = (status: number, code: string) => ({ status, type: `urn:weir:error:${code}` });

/** Signs in, and returns the cookie as a browser sends it. `headers` replaces headers of the request. */
async function signIn(
  { ask }: Pick<ApiRig, 'ask'>,
  role: 'admin' | 'readonly' = 'admin',
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  const answer = await ask('POST', PATH, { token: TOKENS[role], headers });
  if (answer.statusCode !== 201) throw new Error(answer.body);
  return String(answer.headers['set-cookie']).split(';')[0] ?? '';
}

/** Returns an API, a cookie of it, and a function that sends requests with the cookie and without a token. */
async function signedIn(role: 'admin' | 'readonly' = 'admin', options: Parameters<typeof rig>[0] = {}) {
  const own = await rig(options);
  const cookie = await signIn(own, role);
  const browse: ApiRig['ask'] = (method, url, { headers, ...request } = {}) =>
    own.ask(method, url, { token: null, ...request, headers: { cookie, ...headers } });
  return { ...own, cookie, browse };
}

describe('sign-in', () => {
  test('a sign-in with a token returns the session, and a cookie that scripts cannot read and other sites cannot send', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: new Date('2026-02-01T00:00:00Z') });
    onTestFinished(() => void vi.useRealTimers());
    const { ask } = await rig();
    const answer = await ask('POST', PATH, { token: TOKENS.readonly });
    const expires = '2026-02-01T12:00:00.000Z';
    expect([answer.statusCode, answer.json()]).toEqual([
      201,
      { subject: 'rita', role: 'readonly', expires_at: expires, node: 'node-a' },
    ]);
    const [, value = ''] = /^weir-session-localhost-8080=([^;]+);/.exec(String(answer.headers['set-cookie'])) ?? [];
    expect(answer.headers['set-cookie']).toBe(`${NAME}=${value}; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict`);
    expect(decodeJwt(value)).toMatchObject({ aud: 'weir-console', parent: 'readonly', node: 'node-a' });
  });

  test('with TLS, the cookie has the prefix __Host- and the attribute Secure', async () => {
    const { api } = await rig({ tls: { cert: CERTIFICATE, key: KEY } });
    const port = await listening(api);
    const send = async (method: string, path: string, headers: Readonly<Record<string, string>>) => {
      const asked = requestTls({ host: '127.0.0.1', port, path, method, headers, rejectUnauthorized: false });
      const [response] = (await once(asked.end(), 'response')) as [IncomingMessage];
      return { status: response.statusCode, cookie: response.headers['set-cookie']?.[0], body: await text(response) };
    };
    const { cookie = '' } = await send('POST', PATH, { authorization: `Bearer ${TOKENS.admin}` });
    expect(cookie).toMatch(
      new RegExp(
        `^__Host-weir-session-127\\.0\\.0\\.1-${port}=[\\w.-]+; Path=/; .*; HttpOnly; SameSite=Strict; Secure$`,
      ),
    );
    expect((await send('GET', POLICY, { cookie: cookie.split(';')[0] ?? '' })).status).toBe(200);
    const renamed = cookie.split(';')[0]?.replace('__Host-', '') ?? '';
    expect((await send('GET', POLICY, { cookie: renamed })).status).toBe(401);
  });

  test('the cookie of a session at one port of a host is not used at another port of the host', async () => {
    const own = await rig();
    const [first, second] = ['localhost:9001', 'localhost:9002'] as const;
    const cookies = [await signIn(own, 'admin', { host: first }), await signIn(own, 'readonly', { host: second })];
    expect(cookies.map((cookie) => cookie.split('=')[0])).toEqual([
      'weir-session-localhost-9001',
      'weir-session-localhost-9002',
    ]);
    const subjectAt = async (host: string) => {
      const headers = { host, cookie: cookies.join('; ') };
      return (await own.ask('GET', PATH, { token: null, headers })).json<{ subject: string }>().subject;
    };
    expect([await subjectAt(first), await subjectAt(second)]).toEqual(['alice', 'rita']);
    const { statusCode } = await own.ask('GET', POLICY, { token: null, headers: { cookie: cookies[0] ?? '' } });
    expect(statusCode).toBe(401);
  });

  test('a sign-in without credentials, with an invalid token or with the cookie of a session is refused with 401', async () => {
    const { ask, browse } = await signedIn();
    expect(shown(await ask('POST', PATH, { token: null }))).toEqual(problem(401, 'unauthenticated'));
    expect(shown(await browse('POST', PATH))).toEqual(problem(401, 'unauthenticated'));
    expect(shown(await ask('POST', PATH, { token: TOKENS.expired }))).toEqual(problem(401, 'invalid_token'));
    for (const body of [{ token: 'x' }, { code: 1 }, []])
      expect(shown(await ask('POST', PATH, { body }))).toEqual(problem(400, 'invalid_request'));
  });

  test('sign-ins that fail count as failed logins, but a valid token is still accepted', async () => {
    const { ask } = await rig({ limits: { failedLoginsPerWindow: 2 } });
    const statuses = [];
    for (const [token, body] of [
      ['guess', undefined],
      [null, { code: 'guess' }],
      ['guess', undefined],
      [null, { code: 'guess' }],
    ] as const)
      statuses.push((await ask('POST', PATH, { token, ...(body === undefined ? {} : { body }) })).statusCode);
    expect(statuses).toEqual([401, 401, 429, 429]);
    expect((await ask('POST', PATH)).statusCode).toBe(201);
  });

  test('requests to the routes of sessions count for the limit of requests', async () => {
    const { ask } = await rig({ limits: { requestsPerWindow: 2, requestWindowMs: 60_000 } });
    const statuses = [];
    for (let times = 0; times < 3; times++) statuses.push((await ask('GET', PATH, { token: null })).statusCode);
    expect(statuses).toEqual([200, 200, 429]);
  });
});

describe('session', () => {
  test('the session route returns the session of the cookie, and null without a session', async () => {
    const { ask, browse } = await signedIn('readonly');
    expect((await browse('GET', PATH)).json()).toEqual({
      subject: 'rita',
      role: 'readonly',
      expires_at: expect.stringMatching(/Z$/),
      node: 'node-a',
    });
    const without = await ask('GET', PATH, { token: null });
    expect([without.statusCode, without.json(), without.headers['set-cookie']]).toEqual([200, null, undefined]);
    const refused = await ask('GET', PATH, { token: null, headers: { cookie: `${NAME}=garbage` } });
    expect([refused.statusCode, refused.json(), refused.headers['set-cookie']]).toEqual([200, null, REMOVED]);
  });

  test('the cookie of a session takes the place of the token, with the role and the subject of the token', async () => {
    const reader = await signedIn('readonly');
    expect((await reader.browse('GET', POLICY)).statusCode).toBe(200);
    expect(shown(await reader.browse('PUT', SETTING, { body: { enabled: false } }))).toEqual(problem(403, 'forbidden'));
    const admin = await signedIn('admin');
    expect((await admin.browse('PUT', SETTING, { body: { enabled: false } })).statusCode).toBe(200);
    expect(admin.node.recorded.at(-1)).toMatchObject({ operation: 'putPerformanceMode', actor: 'alice' });
  });

  test('the API does not accept a session as a bearer token or a token as a cookie, and counts an invalid cookie as a failed login', async () => {
    const { ask, cookie } = await signedIn('admin', { limits: { failedLoginsPerWindow: 3 } });
    const send = async (headers: Readonly<Record<string, string>>) =>
      shown(await ask('GET', POLICY, { token: null, headers }));
    const jwt = cookie.slice(NAME.length + 1);
    expect(await send({ authorization: `Bearer ${jwt}` })).toEqual(problem(401, 'invalid_token'));
    expect(await send({ cookie: `${NAME}=${TOKENS.admin}` })).toEqual(problem(401, 'invalid_token'));
    expect(await send({ cookie: `other=${jwt}` })).toEqual(problem(401, 'unauthenticated'));
    expect(await send({ authorization: 'Bearer guess', cookie })).toEqual(problem(401, 'invalid_token'));
    expect(await send({ cookie: `${NAME}=` })).toEqual(problem(429, 'too_many_failed_logins'));
    expect((await ask('GET', POLICY, { token: null, headers: { cookie: `a=b;${cookie};c=d` } })).statusCode).toBe(200);
  });

  test('a request with two cookies of the session is refused with 400', async () => {
    const { ask, cookie } = await signedIn();
    const twice = await ask('GET', POLICY, { token: null, headers: { cookie: `${cookie}; ${cookie}` } });
    expect(shown(twice)).toEqual(problem(400, 'malformed_request'));
  });

  test('a session ends when its token is revoked, and the response states this reason', async () => {
    const { browse, node } = await signedIn();
    node.reads.revoked.add('admin');
    const answer = await browse('GET', POLICY);
    expect([shown(answer), answer.json().detail]).toEqual([
      problem(401, 'invalid_token'),
      'the token of the session has expired or was revoked',
    ]);
    const session = await browse('GET', PATH);
    expect([session.json(), session.headers['set-cookie']]).toEqual([null, REMOVED]);
  });

  test('a sign-out ends the session and removes its cookie; without a session it changes nothing', async () => {
    const { ask, browse, node } = await signedIn();
    const out = await browse('DELETE', PATH);
    expect([out.statusCode, out.body, out.headers['set-cookie']]).toEqual([204, '', REMOVED]);
    expect(shown(await browse('GET', POLICY))).toEqual(problem(401, 'invalid_token'));
    const before = node.recorded.length;
    expect((await ask('DELETE', PATH, { token: null })).statusCode).toBe(204);
    expect((await browse('DELETE', PATH)).statusCode).toBe(204);
    expect(node.recorded.length).toBe(before);
  });
});

describe('requests of pages of other origins', () => {
  test.each([
    { origin: 'http://localhost:9999' },
    { origin: 'null' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ])(
    'a read, a write and a sign-out with a valid cookie are refused with 403 if a header such as %j shows another origin',
    async (headers) => {
      const { browse, node } = await signedIn();
      for (const [method, path] of [
        ['GET', POLICY],
        ['HEAD', POLICY],
        ['GET', PATH],
        ['GET', '/api/v1/wiretap/stream'],
        ['PUT', SETTING],
        ['DELETE', PATH],
        ['POST', LINK],
      ] as const) {
        const body = method === 'PUT' ? { body: { enabled: false } } : {};
        const answer = await browse(method, path, { headers, ...body });
        expect({ method, path, status: answer.statusCode }).toEqual({ method, path, status: 403 });
        if (method !== 'HEAD') expect(shown(answer)).toEqual(problem(403, 'origin_refused'));
      }
      expect(node.changes).toEqual([]);
      expect((await browse('GET', PATH)).json()).toMatchObject({ subject: 'alice' });
    },
  );

  test.each([
    {},
    { 'sec-fetch-site': 'same-origin' },
    { 'sec-fetch-site': 'none' },
    { origin: 'http://localhost:8080', 'sec-fetch-site': 'same-origin' },
  ])('a read with a valid cookie is accepted with the headers %j', async (headers) => {
    const { browse } = await signedIn();
    expect((await browse('GET', POLICY, { headers })).statusCode).toBe(200);
  });

  test('a page of another origin may read with a token', async () => {
    const { ask, cookie } = await signedIn();
    const headers = { cookie, 'sec-fetch-site': 'cross-site' };
    expect((await ask('GET', POLICY, { headers })).statusCode).toBe(200);
  });
});

describe('streams', () => {
  const serving = async () => {
    const own = await rig();
    const port = await listening(own.api);
    const host = `127.0.0.1:${port}`;
    return { ...own, port, host, cookie: await signIn(own, 'readonly', { host }) };
  };

  test.each(STREAMS)(
    'the stream %s accepts the cookie, and refuses it from pages of other origins',
    async (path, protocol) => {
      const { host, cookie } = await serving();
      const open = (headers: Readonly<Record<string, string>>) =>
        openWebSocket(`http://${host}${path}`, { token: null, protocol, headers });
      const client = await open({ cookie, origin: `http://${host}`, 'sec-fetch-site': 'same-origin' });
      expect(client.protocol).toBe(protocol);
      client.socket.destroy();
      for (const foreign of [{ origin: 'http://localhost:9999' }, { 'sec-fetch-site': 'same-site' }])
        await expect(open({ cookie, ...foreign })).rejects.toThrow('refused with 403');
      await expect(open({ cookie: 'other=x' })).rejects.toThrow('refused with 401');
    },
  );

  test.each(STREAMS)(
    'the stream %s closes with 4401 when the token of the session is revoked',
    async (path, protocol) => {
      vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
      onTestFinished(() => void vi.useRealTimers());
      const { host, cookie, node } = await serving();
      const client = await openWebSocket(`http://${host}${path}`, { token: null, protocol, headers: { cookie } });
      await expect.poll(() => vi.getTimerCount()).toBeGreaterThan(0);
      node.reads.revoked.add('readonly');
      await vi.advanceTimersByTimeAsync(15_000);
      expect(await client.closed).toEqual({ code: 4401, reason: 'the token was revoked or has expired' });
    },
  );

  test('Server-Sent Events end after a sign-out', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const { ask, port, host, cookie } = await serving();
    const headers = { cookie, accept: 'text/event-stream' };
    const asked = get({ host: '127.0.0.1', port, path: '/api/v1/wiretap/stream', headers, agent: false });
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    expect(response.statusCode).toBe(200);
    await ask('DELETE', PATH, { token: null, headers: { host, cookie } });
    await vi.advanceTimersByTimeAsync(15_000);
    expect(await text(response)).toContain('event: end\ndata: {"reason":"the token was revoked or has expired"}');
  });
});

describe('sign-in link', () => {
  const codeOf = async ({ ask }: Pick<ApiRig, 'ask'>, token: string = TOKENS.readonly) => {
    const answer = await ask('POST', LINK, { token });
    if (answer.statusCode !== 201) throw new Error(answer.body);
    return answer.json<{ code: string; expires_at: string }>();
  };

  test('the code of a sign-in link begins one session of its token; its second use is refused and counts as a failed login', async () => {
    const own = await rig({ limits: { failedLoginsPerWindow: 1 } });
    const { code, expires_at: expiresAt } = await codeOf(own);
    expect([code, Date.parse(expiresAt) - Date.now() <= 60_000]).toEqual([expect.stringMatching(/^[\w-]{43}$/), true]);
    const use = () => own.ask('POST', PATH, { token: null, body: { code } });
    const first = await use();
    expect([first.statusCode, first.json()]).toMatchObject([201, { subject: 'rita', role: 'readonly' }]);
    const second = await use();
    expect([shown(second), second.json().detail, second.headers['www-authenticate']]).toEqual([
      problem(401, 'invalid_sign_in_code'),
      'The code of the sign-in link was used already, has expired, or is not of this node.',
      'Bearer realm="weir"',
    ]);
    expect(shown(await use())).toEqual(problem(429, 'too_many_failed_logins'));
  });

  test('a code begins no session after its token was revoked', async () => {
    const own = await rig();
    const { code } = await codeOf(own);
    own.node.reads.revoked.add('readonly');
    const answer = await own.ask('POST', PATH, { token: null, body: { code } });
    expect([shown(answer), answer.headers['set-cookie']]).toEqual([problem(401, 'invalid_token'), undefined]);
  });

  test('a request with a code and a token is refused with 400, and the code is kept', async () => {
    const own = await rig();
    const { code } = await codeOf(own);
    expect(shown(await own.ask('POST', PATH, { body: { code } }))).toEqual(problem(400, 'invalid_request'));
    expect((await own.ask('POST', PATH, { token: null, body: { code } })).statusCode).toBe(201);
  });

  test('a session cannot create a sign-in link', async () => {
    const { browse } = await signedIn();
    expect(shown(await browse('POST', LINK))).toEqual(problem(403, 'forbidden'));
  });
});

test('the audit trail records sign-ins, links and sign-outs with the subject of the token, and refused ones with the reason', async () => {
  const node = fakeManagement();
  const { ask } = await rig({}, node);
  const remote = '127.0.0.1';
  const cookie = await signIn({ ask });
  const { code } = (await ask('POST', LINK, { token: TOKENS.readonly })).json<{ code: string }>();
  for (let times = 0; times < 2; times++) await ask('POST', PATH, { token: null, body: { code } });
  await ask('GET', POLICY, { token: null, headers: { cookie, 'sec-fetch-site': 'same-site' } });
  await ask('DELETE', PATH, { token: null, headers: { cookie } });
  const changed = { type: 'config_change', remote, etag: null };
  const denied = { type: 'auth_denied', actor: null, remote };
  expect(node.recorded).toEqual([
    { ...changed, actor: 'alice', operation: 'createSession', target: PATH, status: 201 },
    { ...changed, actor: 'rita', operation: 'createSignInLink', target: LINK, status: 201 },
    { ...changed, actor: 'rita', operation: 'createSession', target: PATH, status: 201 },
    { ...denied, reason: 'invalid_sign_in_code', operation: 'createSession', target: PATH },
    { ...denied, reason: 'origin_refused', operation: 'getActivePolicy', target: POLICY },
    { ...changed, actor: 'alice', operation: 'deleteSession', target: PATH, status: 204 },
  ]);
});
