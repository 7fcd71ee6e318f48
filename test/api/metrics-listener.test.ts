import { EventEmitter, once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import type { ProblemDocument } from '#api/errors/errors.js';
import { limitConnections } from '#node/further-listeners.js';
import { fakeManagement, TOKENS } from './fake-management.js';
import { answerTo, concrete, listening, rig } from './rig.js';

type Document = { readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>> };

const OWN = ['/health', '/metrics', '/ready'];
const scraping = (node = fakeManagement()) => rig({ listener: 'metrics' }, node);
const SECURITY = ['x-content-type-options', 'content-security-policy', 'referrer-policy', 'cache-control'];

/** The method and path of each operation of the management API. */
async function operations(): Promise<readonly (readonly [string, string])[]> {
  const { ask } = await rig();
  const { paths } = (await ask('GET', '/openapi/service-v1.json')).json<Document>();
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => [method.toUpperCase(), path] as const),
  );
}

describe('metrics listener', () => {
  test.each(OWN)(
    'the metrics listener serves GET and HEAD of the path %s without a token, with the headers of the API',
    async (path) => {
      const { ask } = await scraping();
      const { ask: askApi } = await rig();
      for (const method of ['GET', 'HEAD']) {
        const answer = await ask(method, path, { token: null });
        expect([method, answer.statusCode]).toEqual([method, 200]);
        const ofApi = (await askApi(method, path)).headers;
        expect(SECURITY.map((name) => answer.headers[name])).toEqual(SECURITY.map((name) => ofApi[name]));
        expect(answer.headers['content-type']).toBe(ofApi['content-type']);
      }
    },
  );

  test('the metrics listener answers 503 at /ready while the node is not ready', async () => {
    const node = fakeManagement();
    const check = { name: 'dataplane', ok: false, state: 'opening', detail: '', since: '2026-01-31T12:00:00.000Z' };
    const { ask } = await scraping(Object.assign(node, { readiness: () => ({ ready: false, checks: [check] }) }));
    expect((await ask('GET', '/ready', { token: null })).statusCode).toBe(503);
    expect((await ask('GET', '/health', { token: null })).statusCode).toBe(200);
  });

  test('the metrics listener has no other path of the management API, even for an admin token', async () => {
    const others = (await operations()).filter(([, path]) => !OWN.includes(path));
    expect(others.length).toBeGreaterThan(50);
    const node = fakeManagement();
    const { ask } = await rig({ listener: 'metrics', limits: { requestsPerWindow: 1_000 } }, node);
    for (const [method, path] of [...others, ['POST', '/api/v1/cluster/join'], ['GET', '/']] as const) {
      const answer = await ask(method, concrete(path), { token: TOKENS.admin });
      expect([method, path, answer.statusCode]).toEqual([method, path, 404]);
    }
    const problem = (await ask('GET', '/api/v1/policy')).json<ProblemDocument>();
    expect(problem).toMatchObject({
      type: 'urn:weir:error:no_such_path',
      detail:
        '/api/v1/policy is not a path of this API; this listener has only /metrics, /health and /ready; the management API is at `api.listen`',
    });
    expect(node.changes).toEqual([]);
  });

  test.each(OWN)(
    'the metrics listener answers 405 to methods other than GET and HEAD for the path %s, with the allowed methods',
    async (path) => {
      const { ask } = await scraping();
      for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
        const answer = await ask(method, path);
        expect([method, answer.statusCode, answer.headers.allow]).toEqual([method, 405, 'GET, HEAD']);
      }
    },
  );

  test.each(['weir-7xk2p.weir-system.pod', 'gateway.example.com:19649', '192.0.2.1:19649', '[2001:db8::1]', 'a_b'])(
    'the metrics listener accepts the Host header %s',
    async (host) => {
      const { ask } = await scraping();
      const { ask: askApi } = await rig();
      expect((await ask('GET', '/metrics', { headers: { host } })).statusCode).toBe(200);
      expect((await askApi('GET', '/metrics', { headers: { host } })).statusCode).toBe(403);
    },
  );

  test('the metrics listener accepts a request of HTTP/1.0 without a Host header, and refuses one of HTTP/1.1', async () => {
    const { api } = await scraping();
    const port = await listening(api);
    expect(await answerTo(port, 'GET /health HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 /);
    expect(await answerTo(port, 'GET /health HTTP/1.1\r\nConnection: close\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 /);
  });

  test.each([
    ['/metrics', 200],
    ['/api/v1/wiretap/stream', 404],
  ])(
    'the metrics listener answers a request for the path %s that offers an upgrade to WebSocket as if it had no offer',
    async (path, status) => {
      const { api } = await scraping();
      const port = await listening(api);
      const offer = 'Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n';
      const key = `Sec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}\r\n`;
      const answer = await answerTo(port, `GET ${path} HTTP/1.1\r\nHost: any.example\r\n${offer}${key}\r\n`);
      expect(Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1])).toBe(status);
    },
  );

  describe.each([
    { client: 'a remote client', from: '192.0.2.1', isCounted: true },
    { client: 'the node, by loopback', from: '127.0.0.1', isCounted: false },
    { client: 'the node, by loopback to an IPv6 socket', from: '::ffff:127.0.0.2', isCounted: false },
  ])('with requests of $client', ({ from, isCounted }) => {
    test(`the metrics listener ${isCounted ? 'limits' : 'does not limit'} the requests from ${from} in a time window, also those to public paths`, async () => {
      const { api } = await rig({ listener: 'metrics', limits: { requestsPerWindow: 3, requestWindowMs: 60_000 } });
      const statuses: number[] = [];
      for (const url of ['/metrics', '/health', '/nope', '/metrics'])
        statuses.push((await api.inject({ url, remoteAddress: from })).statusCode);
      expect(statuses).toEqual([200, 200, 404, isCounted ? 429 : 200]);
    });
  });

  test('the metrics listener closes without waiting for a client whose request body is not complete', async () => {
    const lingerMs = 5_000;
    const { api } = await rig({ listener: 'metrics', limits: { lingerMs } });
    const port = await listening(api);
    const client = connect(port, '127.0.0.1');
    client.write('GET /health HTTP/1.1\r\nHost: any.example\r\nContent-Length: 1000000\r\n\r\nx');
    await once(client, 'data');
    const stopped = performance.now();
    await Promise.all([api.close(), once(client, 'close')]);
    expect(performance.now() - stopped).toBeLessThan(lingerMs / 2);
  });

  test('the metrics listener limits the connections of the node itself and the connections of remote clients separately', () => {
    const refuses = limitConnections();
    const own = '10.0.0.1';
    const opened: EventEmitter[] = [];
    const open = (remoteAddress: string): boolean => {
      const socket = Object.assign(new EventEmitter(), { remoteAddress, localAddress: own, _handle: { fd: 9 } });
      opened.push(socket);
      return !refuses(socket as unknown as Socket);
    };
    const accepted = (source: string, count: number) =>
      Array.from({ length: count }, () => open(source)).filter(Boolean);
    expect(accepted('192.0.2.1', 40)).toHaveLength(32);
    for (const last of [2, 3, 4]) expect(accepted(`192.0.2.${last}`, 32)).toHaveLength(32);
    expect(accepted('192.0.2.5', 1)).toHaveLength(0);
    expect(accepted(own, 300)).toHaveLength(300);
    expect(accepted('127.0.0.1', 300)).toHaveLength(200);
    opened[0]?.emit('close');
    expect(accepted('192.0.2.5', 2)).toHaveLength(1);
  });
});

test('the management API serves the paths of the metrics listener too', async () => {
  const { ask } = await rig();
  for (const path of OWN) expect([path, (await ask('GET', path, { token: null })).statusCode]).toEqual([path, 200]);
});
