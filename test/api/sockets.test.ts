import { METHODS } from 'node:http';
import { connect } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { describe, expect, test } from 'vitest';
import type { ApiLimits } from '#api/api-options.js';
import { ProgressClock } from '#test/progress-clock.js';
import { CERTIFICATE, KEY } from './certificate.js';
import { TOKENS } from './fake-management.js';
import { answerTo, listening, rig } from './rig.js';

const AUTHORIZED = `Host: localhost\r\nAuthorization: Bearer ${TOKENS.admin}\r\n`;
const QUICK: Partial<ApiLimits> = { connectionsCheckingIntervalMs: 20, headersTimeoutMs: 100, requestTimeoutMs: 100 };

/**
 * Sends raw bytes to a new API. Resolves with the response and its duration when the server has closed the
 * connection.
 */
async function converse(bytes: string | Buffer, limits: Partial<ApiLimits> = {}) {
  const { api, node } = await rig({ limits });
  const port = await listening(api);
  const started = performance.now();
  const clock = new ProgressClock();
  const text = await new Promise<string>((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
    let received = '';
    socket.setEncoding('utf8').on('data', (part: string) => {
      received += part;
    });
    socket.on('close', () => resolve(received)).on('error', reject);
  });
  const [head = '', body = ''] = text.split('\r\n\r\n');
  return {
    status: Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1]),
    head,
    type: body === '' ? undefined : (JSON.parse(body) as { type: string }).type,
    ms: performance.now() - started,
    progressMs: clock.ms(),
    changes: node.changes,
    text,
  };
}

describe('malformed HTTP request', () => {
  test.each([
    ['text that is not HTTP', 'hello\r\n\r\n', 400, 'malformed_request'],
    ['an unknown method', `FOO / HTTP/1.1\r\n${AUTHORIZED}\r\n`, 400, 'malformed_request'],
    ['no Host header', 'GET /health HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'malformed_request'],
    ['an empty Host header', 'GET /health HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n', 403, 'host_refused'],
    ['no Host header in HTTP/1.0', 'GET /health HTTP/1.0\r\n\r\n', 403, 'host_refused'],
    [
      'two Host headers',
      'GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n',
      400,
      'malformed_request',
    ],
    [
      'two Content-Length headers',
      `PUT /api/v1/policy HTTP/1.1\r\n${AUTHORIZED}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`,
      400,
      'malformed_request',
    ],
    [
      'two Cookie headers',
      `GET /api/v1/policy HTTP/1.1\r\n${AUTHORIZED}Cookie: a=b\r\nCookie: c=d\r\nConnection: close\r\n\r\n`,
      400,
      'malformed_request',
    ],
    [
      'both Content-Length and chunked encoding',
      `PUT /api/v1/policy HTTP/1.1\r\n${AUTHORIZED}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
      'malformed_request',
    ],
    [
      'headers that are too long',
      `GET /health HTTP/1.1\r\n${AUTHORIZED}X: ${'x'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers_too_large',
    ],
    [
      'too many headers',
      `GET /health HTTP/1.1\r\n${AUTHORIZED}${'X: y\r\n'.repeat(120)}Connection: close\r\n\r\n`,
      431,
      'headers_too_large',
    ],
  ] as const)(
    'a malformed HTTP request (%s) gets an error response, and changes nothing on the node',
    async (_name, bytes, status, code) => {
      const answer = await converse(bytes);
      expect({ status: answer.status, type: answer.type, changes: answer.changes }).toEqual({
        status,
        type: `urn:weir:error:${code}`,
        changes: [],
      });
      expect(answer.text).not.toMatch(/node_modules|\n\s+at /);
    },
  );

  test('a malformed HTTP request gets a problem document with a Content-Length header', async () => {
    const { head, text } = await converse('hello\r\n\r\n');
    expect(head).toContain('Content-Type: application/problem+json; charset=utf-8');
    expect(head).toContain(`Content-Length: ${Buffer.byteLength(text.split('\r\n\r\n')[1] ?? '')}`);
  });
});

describe('slow client', () => {
  test('a slow client gets 408 and is disconnected if the request headers are not complete in time', async () => {
    const answer = await converse('GET /health HTTP/1.1\r\nHost: localhost\r\nX-', QUICK);
    expect([answer.status, answer.type]).toEqual([408, 'urn:weir:error:request_timeout']);
    expect(answer.progressMs).toBeLessThan(3_000);
  });

  test.each(['/api/v1/tokens', '/api/v1/session'])(
    'a slow client gets 408 and is disconnected if the request body for %s is not complete in time',
    async (path) => {
      const answer = await converse(
        `POST ${path} HTTP/1.1\r\n${AUTHORIZED}Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{"sub`,
        QUICK,
      );
      expect([answer.status, answer.type, answer.changes]).toEqual([408, 'urn:weir:error:request_timeout', []]);
      expect(answer.progressMs).toBeLessThan(3_000);
    },
  );

  test('a slow client gets more time to send the body of a policy write than to send other bodies', async () => {
    const answer = await converse(
      `PUT /api/v1/policy HTTP/1.1\r\n${AUTHORIZED}Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{"sou`,
      { ...QUICK, requestTimeoutMs: 10, policyRequestTimeoutMs: 200 },
    );
    expect([answer.status, answer.type, answer.changes]).toEqual([408, 'urn:weir:error:request_timeout', []]);
    expect(answer.ms).toBeGreaterThanOrEqual(190);
  });

  test('a slow client is disconnected if it sends no further request within the keep-alive timeout', async () => {
    const answer = await converse('GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n', { keepAliveTimeoutMs: 50 });
    expect([answer.status, answer.text.endsWith('{"status":"ok"}')]).toEqual([200, true]);
    expect(answer.progressMs).toBeLessThan(5_000);
  });
});

describe('oversized request body', () => {
  test('an oversized request body is refused with 413 as soon as the Content-Length header arrives, and the connection is closed', async () => {
    const answer = await converse(
      `PUT /api/v1/policy HTTP/1.1\r\n${AUTHORIZED}Content-Type: application/json\r\nContent-Length: 68157440\r\n\r\n{`,
      { lingerMs: 20 },
    );
    expect(answer.progressMs).toBeLessThan(2_000);
    expect([answer.status, answer.type, answer.changes]).toEqual([413, 'urn:weir:error:body_too_large', []]);
  });

  test('an oversized request body in chunked encoding is refused with 413 when the received size exceeds the limit', async () => {
    const chunk = `${(1 << 20).toString(16)}\r\n${'x'.repeat(1 << 20)}\r\n`;
    const answer = await converse(
      `POST /api/v1/tokens HTTP/1.1\r\n${AUTHORIZED}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${chunk}${chunk}`,
      { lingerMs: 20 },
    );
    expect([answer.status, answer.type, answer.changes]).toEqual([413, 'urn:weir:error:body_too_large', []]);
  });

  test('an oversized request body gets the response 413 even if the client reads only after it has sent the complete body', async () => {
    const { api } = await rig();
    const port = await listening(api);
    const answer = await fetch(`http://127.0.0.1:${port}/api/v1/policy`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${TOKENS.admin}`, 'content-type': 'application/json' },
      body: ' '.repeat(65 * 1024 * 1024),
    });
    expect([answer.status, ((await answer.json()) as { type: string }).type]).toEqual([
      413,
      'urn:weir:error:body_too_large',
    ]);
  });
});

test('the API accepts the local address of the connection in the Host header without configuration', async () => {
  const { api } = await rig();
  await api.listen({ host: '127.0.0.2', port: 0 });
  const address = api.server.address() as { port: number };
  expect((await fetch(`http://127.0.0.2:${address.port}/health`)).status).toBe(200);
});

describe('API with TLS', () => {
  const serving = async () => {
    const { api } = await rig({ tls: { cert: CERTIFICATE, key: KEY } });
    return listening(api);
  };

  test('the API with TLS accepts TLS 1.2 and TLS 1.3, and refuses older versions', async () => {
    const port = await serving();
    expect(await handshake(port, {})).toBe('TLSv1.3');
    expect(await handshake(port, { maxVersion: 'TLSv1.2' })).toBe('TLSv1.2');
    expect(await handshake(port, { minVersion: 'TLSv1', maxVersion: 'TLSv1.1' })).toBe('refused');
  });

  test('the API with TLS refuses plain HTTP', async () => {
    const port = await serving();
    await expect(fetch(`http://127.0.0.1:${port}/health`)).rejects.toThrow('fetch failed');
  });
});

function handshake(port: number, versions: ConnectionOptions): Promise<string | null> {
  return new Promise((resolve) => {
    const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ...versions }, () => {
      resolve(socket.getProtocol());
      socket.destroy();
    });
    socket.on('error', () => resolve('refused'));
  });
}

/**
 * Sends requests on one connection, each after the response to the previous request. Resolves with the heads
 * of all responses when the node closes the connection.
 */
async function inTurn(requests: readonly string[], limits: Partial<ApiLimits>) {
  const { api } = await rig({ limits });
  const port = await listening(api);
  return await new Promise<readonly string[]>((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let received = '';
    let sent = 0;
    const heads = () => received.match(/HTTP\/1\.1 \d+[\s\S]*?\r\n\r\n/g) ?? [];
    const send = () => void (sent < requests.length ? socket.write(requests[sent++] as string) : socket.end());
    socket.setEncoding('utf8').on('connect', send).on('error', reject);
    socket.on('data', (part: string) => {
      received += part;
      if (heads().length === sent) send();
    });
    socket.on('close', () => resolve(heads()));
  });
}

describe('connection that reaches the limit of requests', () => {
  const get = (path: string) => `GET ${path} HTTP/1.1\r\n${AUTHORIZED}\r\n`;
  const head = (path: string) => `HEAD ${path} HTTP/1.1\r\n${AUTHORIZED}\r\n`;
  test.each([
    ['a successful request', head('/health'), 200],
    ['a request for an unknown path', head('/nope'), 404],
    ['a request with a method that is not allowed', `DELETE /health HTTP/1.1\r\n${AUTHORIZED}\r\n`, 405],
    ['a request without a token', 'HEAD /api/v1/policy HTTP/1.1\r\nHost: localhost\r\n\r\n', 401],
    ['a request with an invalid query', head('/api/v1/policy?a=b'), 400],
    ['a request with an invalid path', head('/%zz'), 400],
    ['a request with a refused Host header', 'HEAD /health HTTP/1.1\r\nHost: evil\r\n\r\n', 403],
  ])(
    'a connection that reaches the limit of requests is closed after its last request (%s), whose response has the header `Connection: close`',
    async (_, last, status) => {
      const heads = await inTurn([head('/health'), head('/health'), last, get('/health')], {
        requestsPerSocket: 3,
      });
      expect(heads.map((text) => Number(/\d{3}/.exec(text)?.[0]))).toEqual([200, 200, status]);
      expect(heads.map((text) => /\r\nconnection: close\r\n/i.test(text))).toEqual([false, false, true]);
    },
  );

  test('a client gets no response to the requests that it pipelined beyond the limit of 1,000 requests per connection', async () => {
    const { api } = await rig({ limits: { requestsPerSocket: 1_000, requestsPerWindow: 10_000 } });
    const text = await answerTo(await listening(api), get('/nope').repeat(1_100));
    expect(text.match(/HTTP\/1\.1 404/g)).toHaveLength(1_000);
    expect(text).not.toContain('HTTP/1.1 503');
  });
});

describe('HTTP request', () => {
  const methods = METHODS.filter((method) => method !== 'CONNECT');
  test.each(['/health', '/api/v1/policy', '/api/v1/policies/x1', '/nope', '/', '*'])(
    'an HTTP request of every method that Node parses gets a response with a status below 500 for the path %s',
    async (path) => {
      const { api } = await rig();
      const port = await listening(api);
      const statuses = await Promise.all(
        methods.map(async (method) => {
          const text = await answerTo(port, `${method} ${path} HTTP/1.1\r\n${AUTHORIZED}Connection: close\r\n\r\n`);
          const status = Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1]);
          if (status === 405) expect(text).toMatch(/\r\nallow: [A-Z]/i);
          if (status >= 400 && method !== 'HEAD') expect(text).toMatch(/\r\ncontent-type: application\/problem\+json/i);
          return [method, status] as const;
        }),
      );
      expect(statuses.filter(([, status]) => !(status >= 200 && status < 500))).toEqual([]);
      expect(Object.fromEntries(statuses).QUERY).toBe(
        methods.includes('QUERY') ? (path === '*' ? 400 : path === '/nope' || path === '/' ? 404 : 405) : undefined,
      );
    },
  );

  test.each(['CONNECT localhost:443', 'CONNECT /health'])(
    'an HTTP request with the method and target "%s" is refused with 400 or 405',
    async (line) => {
      const { status, type } = await converse(`${line} HTTP/1.1\r\n${AUTHORIZED}\r\n`);
      expect([400, 405]).toContain(status);
      expect(type).toMatch(/^urn:weir:error:(method_not_allowed|malformed_request)$/);
    },
  );

  test.each([
    'http://localhost/health',
    'http://evil.test/health',
    'HTTP://localhost/health',
    'https://localhost/api/v1/policy',
    'ftp://localhost/health',
    '//localhost/health',
    '//health',
    '///health',
    '*',
    'health',
    '?a=b',
    'localhost:8080',
    '@evil/health',
  ])('an HTTP request with the request target %s is refused with 400', async (target) => {
    const { status, type } = await converse(`GET ${target} HTTP/1.1\r\n${AUTHORIZED}Connection: close\r\n\r\n`);
    expect(status).toBe(400);
    expect(type).toMatch(/^urn:weir:error:(invalid_url|malformed_request)$/);
  });
});

describe('request that offers an upgrade', () => {
  const STREAMS = ['/api/v1/wiretap/stream', '/api/v1/debug/statecharts/stream'];
  const offer = (method: string, path: string, protocol: string, more = AUTHORIZED, body = '') =>
    `${method} ${path} HTTP/1.1\r\n${more}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: ${protocol}\r\n` +
    `HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n` +
    `${body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`}\r\n${body}`;
  const LAST = `GET /health HTTP/1.1\r\n${AUTHORIZED}Connection: close\r\n\r\n`;
  const HOST = 'Host: localhost\r\n';
  const statusesOf = (text: string) => (text.match(/HTTP\/1\.1 \d+/g) ?? []).map((line) => Number(line.slice(9)));
  const token = JSON.stringify({ subject: 'alice', role: 'readonly' });

  test.each([
    ['GET', '/health', 'h2c', 200, ''],
    ['GET', '/health', 'websocket', 200, ''],
    ['GET', '/metrics', 'websocket, h2c', 200, ''],
    ['GET', '/api/v1/policy', 'h2c', 200, ''],
    ['GET', '/api/v1/policy', 'TLS/1.0', 200, ''],
    ['POST', '/api/v1/tokens', 'h2c', 201, token],
    ['POST', '/api/v1/tokens', 'websocket', 201, token],
    ['GET', '/nope', 'websocket', 404, ''],
    ['DELETE', '/health', 'h2c', 405, ''],
    ...STREAMS.map((path) => ['GET', path, 'h2c', 426, ''] as const),
  ] as const)(
    'the request %s %s with an offer to upgrade to the protocol "%s" is answered as if it had no offer',
    async (method, path, protocol, status, body) => {
      const { api } = await rig();
      const port = await listening(api);
      const text = await answerTo(port, offer(method, path, protocol, AUTHORIZED, body));
      expect(statusesOf(text)).toEqual([status]);
      expect(text).toMatch(/\r\nconnection: close/i);
      expect(statusesOf(await answerTo(port, LAST))).toEqual([200]);
      if (status < 400) return;
      expect(text).toMatch(/\r\ncontent-type: application\/problem\+json/i);
      if (status !== 426) return;
      expect(text).toMatch(/\r\nupgrade: websocket\r\n/i);
      expect(text).toMatch(/\r\nconnection: close, upgrade\r\n/i);
    },
  );

  test.each(STREAMS.flatMap((path) => ['websocket', 'h2c'].map((protocol) => [path, protocol] as const)))(
    'a request for the stream %s with an offer to upgrade to the protocol %s gets 401 without a token, even if the handshake is invalid',
    async (path, protocol) => {
      const { api } = await rig();
      const port = await listening(api);
      const clock = new ProgressClock();
      expect(statusesOf(await answerTo(port, offer('GET', path, protocol, HOST)))).toEqual([401]);
      const broken = `GET ${path} HTTP/1.1\r\n${HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`;
      expect(statusesOf(await answerTo(port, broken))).toEqual([401]);
      expect(clock.ms()).toBeLessThan(5_000);
    },
  );

  test.each([
    ['without a version', '', 426, 'upgrade_needed'],
    ['with an old version', 'Sec-WebSocket-Version: 8\r\n', 426, 'upgrade_needed'],
    ['without a key', 'Sec-WebSocket-Version: 13\r\n', 400, 'malformed_request'],
    ['with a short key', 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n', 400, 'malformed_request'],
  ])(
    'a request that offers an upgrade to WebSocket with an invalid handshake (%s) gets a problem document',
    async (_, headers, expected, code) => {
      const upgrade = `Connection: Upgrade\r\nUpgrade: websocket\r\n${headers}`;
      const { status, type, head } = await converse(`GET ${STREAMS[0]} HTTP/1.1\r\n${AUTHORIZED}${upgrade}\r\n`);
      expect([status, type]).toEqual([expected, `urn:weir:error:${code}`]);
      if (status === 426) expect(head).toMatch(/\r\nupgrade: websocket[\s\S]*\r\nsec-websocket-version: 13/i);
    },
  );
});

test('a request with an unknown Expect header is answered as a request without that header', async () => {
  const { status, text } = await converse(
    `GET /health HTTP/1.1\r\n${AUTHORIZED}Expect: a-miracle\r\nConnection: close\r\n\r\n`,
  );
  expect([status, text.endsWith('{"status":"ok"}')]).toEqual([200, true]);
});

describe('an API that closes', () => {
  test.each([
    ['HTTP', {}, (port: number) => connect(port, '127.0.0.1')],
    [
      'HTTPS',
      { tls: { cert: CERTIFICATE, key: KEY } },
      (port: number) => connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false }),
    ],
  ])(
    'the shutdown of the API does not wait for a connection on which no request was sent (protocol: %s)',
    async (_, options, open) => {
      const { api } = await rig(options);
      const socket = open(await listening(api));
      socket.on('error', () => {});
      await new Promise((resolve) => socket.once('encrypted' in socket ? 'secureConnect' : 'connect', resolve));
      await expect.poll(() => count(api)).toBe(1);
      const clock = new ProgressClock();
      await api.close();
      expect(clock.ms()).toBeLessThan(2_000);
    },
  );
});

function count(api: Awaited<ReturnType<typeof rig>>['api']): Promise<number> {
  return new Promise((resolve, reject) =>
    api.server.getConnections((failure, found) => (failure === null ? resolve(found) : reject(failure))),
  );
}
