import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { answerOf, fetch, open } from './http2-request.js';
import { createHttp2Rig, type Http2Rig } from './http2-rig.js';

let rig: Http2Rig;
beforeEach(async () => {
  rig = await createHttp2Rig();
});
afterEach(() => rig.close());

/** Makes the server respond to each request with a description of that request. */
function echo(): void {
  rig.server.on(
    'stream',
    (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
      stream.on('error', () => {});
      let bytes = 0;
      let trailers: unknown = null;
      stream.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
      });
      stream.on('trailers', (its) => {
        trailers = { ...its };
      });
      stream.on('end', () => {
        if (stream.destroyed) return;
        stream.respond({ ':status': 200, 'content-type': 'application/json' });
        stream.end(JSON.stringify({ method: headers[':method'], raw, bytes, trailers }));
      });
    },
  );
}
type Echo = { readonly raw: readonly string[]; readonly bytes: number; readonly trailers: unknown };
const echoed = (body: string): Echo => JSON.parse(body) as Echo;
const pairs = ({ raw }: Echo): readonly string[] =>
  raw.flatMap((name, index) => (index % 2 === 0 ? [`${name}: ${raw[index + 1]}`] : []));

test('an HTTP/2 request is forwarded with all its fields and one joined cookie field, and the client receives the response', async () => {
  echo();
  const { status, body, isWhole } = await fetch(rig.client(), {
    ':path': '/a?b=c',
    'x-many': ['1', '2'],
    cookie: ['a=b', 'c=d'],
    'user-agent': 'me',
    'x-latin': '\u00e4',
    te: 'trailers',
  });
  expect([status, isWhole]).toEqual([200, true]);
  expect(pairs(echoed(body))).toEqual([
    ':method: GET',
    ':scheme: https',
    `:authority: ${SERVER_NAME}`,
    ':path: /a?b=c',
    'x-many: 1',
    'x-many: 2',
    'user-agent: me',
    'x-latin: \u00e4',
    'te: trailers',
    'cookie: a=b; c=d',
  ]);
});

test('an HTTP/2 request that no rule allows gets a response with status 403, and does not reach the server', async () => {
  echo();
  rig.rule({ request: { path: { prefix: ['/v1/'] } } });
  const client = rig.client();
  const denied = await fetch(client, { ':path': '/other' });
  expect([denied.status, denied.isWhole]).toEqual([403, true]);
  expect(JSON.parse(denied.body)).toMatchObject({ status: 403, title: 'Forbidden', source_group: null });
  expect((await fetch(client, { ':path': '/v1/x' })).status).toBe(200);
  const upload = await fetch(client, { ':path': '/other', ':method': 'PUT' }, 'x'.repeat(1_000_000));
  expect(upload.status).toBe(403);
  const head = await fetch(client, { ':path': '/other', ':method': 'HEAD' });
  expect([head.status, head.body, head.isWhole]).toEqual([403, '', true]);
  expect(rig.decisions.map(({ verdict }) => verdict)).toEqual(['deny', 'allow', 'deny', 'deny']);
});

test('an HTTP/2 request for a host other than the server name is refused, and the reason is recorded', async () => {
  echo();
  const client = rig.client();
  const stream = client.request({ ':authority': 'other.test', ':path': '/' });
  expect((await answerOf(stream)).status).toBe(421);
  expect((await fetch(client, { ':path': '/', host: 'other.test' })).status).toBe(400);
  expect(rig.refused).toEqual(['request_host_is_not_sni', 'request_two_hosts']);
  expect(rig.decisions).toEqual([]);
});

test('an HTTP/2 CONNECT request is refused with status 501', async () => {
  echo();
  const client = rig.client();
  const plain = client.request({ ':method': 'CONNECT', ':authority': SERVER_NAME });
  expect((await answerOf(plain)).status).toBe(501);
  expect(client.remoteSettings.enableConnectProtocol).toBe(false);
});

test('HTTP/2 bodies and trailers are forwarded in both directions', async () => {
  rig.server.on('stream', (stream) => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    let its = {};
    stream.on('trailers', (trailers) => {
      its = { 'x-echo': trailers['x-sum'] };
    });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', ...its }));
    stream.pipe(stream);
  });
  const stream = open(rig.client(), { ':path': '/', ':method': 'POST' }, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': '42' }));
  const answer = answerOf(stream);
  const body = 'y'.repeat(3_000_000);
  stream.end(body);
  const { body: back, trailers, isWhole } = await answer;
  expect([back.length, isWhole]).toEqual([body.length, true]);
  expect(trailers).toEqual({ 'grpc-status': '0', 'x-echo': '42' });
});

test('an HTTP/2 request is reset if a trailer name differs from a field name only in _ and -', async () => {
  const seen: unknown[] = [];
  rig.server.on('stream', (stream) => {
    stream.on('trailers', (its) => seen.push({ ...its }));
    stream.on('error', () => {});
    stream.on('end', () => {
      if (stream.closed) return;
      stream.respond({ ':status': 200 });
      stream.end();
    });
    stream.resume();
  });
  const stream = open(rig.client(), { ':path': '/', ':method': 'POST', 'x-user': 'a' }, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers({ x_user: 'b' }));
  const answer = answerOf(stream);
  stream.end('x');
  expect([(await answer).isWhole, seen]).toEqual([false, []]);
});

test('HTTP/2 trailers of request and response are dropped if the rule has matchers for headers', async () => {
  rig.rule({ request: { headers: { deny_present: ['x-a'] } }, response: { headers: { deny_present: ['x-b'] } } });
  const seen: unknown[] = [];
  rig.server.on('stream', (stream) => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    stream.on('trailers', (its) => seen.push({ ...its }));
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-b': '1' }));
    stream.on('end', () => stream.end('ok'));
    stream.resume();
  });
  const stream = open(rig.client(), { ':path': '/', ':method': 'POST' }, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers({ 'x-a': '1' }));
  const answer = answerOf(stream);
  stream.end('x');
  const { body, trailers, isWhole } = await answer;
  expect([body, trailers, isWhole, seen]).toEqual(['ok', {}, true, []]);
});

test('an interim or final HTTP/2 response that violates the rule is replaced by a response with status 502', async () => {
  rig.rule({ response: { headers: { deny_present: ['x-internal'] } } });
  rig.server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    if (headers[':path'] === '/early') stream.additionalHeaders({ ':status': 103, 'x-internal': '1' });
    stream.respond({ ':status': 200, ...(headers[':path'] === '/late' ? { 'x-internal': '1' } : {}) });
    stream.end('secret');
  });
  const client = rig.client();
  for (const path of ['/early', '/late']) {
    const { status, body } = await fetch(client, { ':path': path });
    expect(status).toBe(502);
    expect(body).not.toContain('secret');
  }
  expect(rig.broken).toEqual([
    '/response/headers/deny_present/x-internal',
    '/response/headers/deny_present/x-internal',
  ]);
  expect((await fetch(client, { ':path': '/' })).body).toBe('secret');
});

test('HTTP/2 early hints are forwarded, status 100 comes from the service plane, and responses to HEAD, 204 and 304 have no body', async () => {
  rig.server.on('stream', (stream, headers) => {
    stream.additionalHeaders({ ':status': 103, link: '</x>' });
    const status = Number(String(headers[':path']).slice(1));
    stream.respond({ ':status': status, 'content-length': status === 200 ? 5 : undefined });
    stream.end(status === 200 && headers[':method'] !== 'HEAD' ? 'hello' : undefined);
  });
  const client = rig.client();
  const got = async (path: string, method = 'GET') => {
    const { status, body, interim, isWhole, headers } = await fetch(client, { ':path': path, ':method': method });
    return [status, body, interim, isWhole, headers['content-length']];
  };
  expect(await got('/200')).toEqual([200, 'hello', [103], true, '5']);
  expect(await got('/200', 'HEAD')).toEqual([200, '', [103], true, '5']);
  expect(await got('/204')).toEqual([204, '', [103], true, undefined]);
  expect(await got('/304')).toEqual([304, '', [103], true, undefined]);
  const stream = open(client, { ':path': '/200', ':method': 'PUT', expect: '100-continue' });
  const answer = answerOf(stream);
  stream.once('continue', () => stream.end('body'));
  expect((await answer).interim).toEqual([100, 103]);
});

test('an HTTP/2 reset is forwarded with its error code in both directions, and a truncated body does not appear complete', async () => {
  const codes: number[] = [];
  rig.server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    stream.once('close', () => codes.push(stream.rstCode));
    if (headers[':path'] === '/wait') return;
    // Without `waitForTrailers`, Node reports the end of the body even if the stream is cancelled.
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    stream.write('part', () => stream.close(Number(String(headers[':path']).slice(1))));
  });
  const client = rig.client();
  for (const code of [
    constants.NGHTTP2_CANCEL,
    constants.NGHTTP2_INTERNAL_ERROR,
    constants.NGHTTP2_HTTP_1_1_REQUIRED,
  ]) {
    const answer = await fetch(client, { ':path': `/${code}` });
    expect([answer.code, answer.isWhole]).toEqual([code, false]);
  }
  codes.length = 0;
  const reached = new Promise((resolve) => rig.server.once('stream', resolve));
  const stream = open(client, { ':path': '/wait' });
  const answer = answerOf(stream);
  await reached;
  stream.close(constants.NGHTTP2_CANCEL);
  await answer;
  await expect.poll(() => codes).toEqual([constants.NGHTTP2_CANCEL]);
});

test('an HTTP/2 client gets status 502 if the server connection breaks before the response head, and a truncated body after the head', async () => {
  rig.server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    if (headers[':path'] === '/begun') {
      stream.respond({ ':status': 200 });
      stream.write('part');
    } else rig.links.at(-1)?.destroy();
  });
  const { status, isWhole } = await fetch(rig.client(), { ':path': '/' });
  expect([status, isWhole]).toEqual([502, true]);
  expect(rig.refused).toEqual(['server_closed']);
  const stream = open(rig.client(), { ':path': '/begun' });
  stream.once('data', () => rig.links.at(-1)?.destroy());
  const cut = await answerOf(stream);
  expect([cut.status, cut.isWhole]).toEqual([200, false]);
});

test("after the server sends GOAWAY, the client's connection ends when all open requests are complete", async () => {
  rig.server.on('stream', (stream) => {
    stream.session?.close();
    stream.respond({ ':status': 200 });
    stream.end('last');
  });
  const client = rig.client();
  const gone = new Promise((resolve) => client.once('goaway', resolve));
  const ended = new Promise((resolve) => client.once('close', resolve));
  expect((await fetch(client)).body).toBe('last');
  expect(await gone).toBe(0);
  await ended;
  await expect.poll(() => rig.sessions.size).toBe(0);
});

test('the requests of a disconnected HTTP/2 client are cancelled at the server', async () => {
  const gone = new Promise((resolve) =>
    rig.server.once('stream', (stream) => {
      stream.on('error', () => {});
      stream.once('close', resolve);
      client.destroy();
    }),
  );
  const client = rig.client();
  open(client, { ':path': '/' }).on('error', () => {});
  await gone;
  await expect.poll(() => rig.sessions.size).toBe(0);
  await expect.poll(() => rig.links.every(({ destroyed }) => destroyed)).toBe(true);
});

test('each HTTP/2 request is evaluated by the rule in force at its arrival', async () => {
  echo();
  const client = rig.client();
  expect((await fetch(client)).status).toBe(200);
  rig.rule({ request: { methods: ['POST'] } });
  expect((await fetch(client)).status).toBe(403);
  for (const session of rig.sessions) session.close();
  await new Promise((resolve) => client.once('close', resolve));
});

test('all values of a repeated HTTP/2 response field reach the client', async () => {
  rig.server.on('stream', (stream) => {
    stream.respond({ ':status': 200, 'set-cookie': ['a=b', 'c=d'], 'x-frame': ['1', '2'] });
    stream.end();
  });
  const { headers } = await fetch(rig.client());
  expect([headers['set-cookie'], headers['x-frame']]).toEqual([['a=b', 'c=d'], '1, 2']);
});

test('the connection of a client stays open although the server resets more than 1,000 requests', async () => {
  rig.server.on('stream', (stream) => {
    stream.on('error', () => {});
    stream.close(constants.NGHTTP2_HTTP_1_1_REQUIRED);
  });
  const client = rig.client();
  for (let round = 0; round < 21; round++) {
    const answers = await Promise.all(Array.from({ length: 50 }, () => fetch(client)));
    expect(new Set(answers.map(({ code }) => code))).toEqual(new Set([constants.NGHTTP2_HTTP_1_1_REQUIRED]));
  }
  expect([client.destroyed, client.closed, rig.refused]).toEqual([false, false, []]);
});

test('with deniedHttp `reset`, a denied HTTP/2 request resets its stream, and the connection stays open', async () => {
  await rig.close();
  rig = await createHttp2Rig('reset');
  echo();
  rig.rule({ request: { methods: ['POST'] } });
  const client = rig.client();
  const { status, code } = await fetch(client);
  expect([status, code]).toEqual([null, constants.NGHTTP2_CANCEL]);
  expect((await fetch(client, { ':path': '/', ':method': 'POST' }, 'x')).status).toBe(200);
});
