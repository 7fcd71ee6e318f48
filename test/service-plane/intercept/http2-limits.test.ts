import { constants } from 'node:http2';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { block, END_HEADERS, END_STREAM, FRAME, frame, GET, integer, RawClient } from './frames.js';
import { fetch } from './http2-request.js';
import { createHttp2Rig, type Http2Rig } from './http2-rig.js';

let rig: Http2Rig;
let client: RawClient;
/** The number of requests that reached the server. */
let reached: number;
beforeEach(async () => {
  rig = await createHttp2Rig();
  reached = 0;
  rig.server.on('stream', (stream, headers) => {
    reached++;
    stream.on('error', () => {});
    if (headers[':path'] === '/wait') return;
    if (headers[':path'] === '/forbidden-trailer') {
      stream.respond({ ':status': 200 }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'if-match': '"a"' }));
      stream.end('ok');
      return;
    }
    stream.respond({ ':status': 200 });
    stream.end('ok');
  });
  client = new RawClient(await rig.dial());
});
afterEach(async () => {
  // Check that the service plane still serves other clients after each test.
  expect((await fetch(rig.client())).body).toBe('ok');
  await rig.close();
});

const get = (stream: number, ...fields: readonly (readonly [string, string])[]): Buffer =>
  frame(FRAME.headers, END_STREAM | END_HEADERS, stream, block([...GET, ...fields]));
const getPath = (stream: number, path: string): Buffer =>
  frame(
    FRAME.headers,
    END_STREAM | END_HEADERS,
    stream,
    block(GET.map(([name, value]) => [name, name === ':path' ? path : value])),
  );
const wait = (stream: number): Buffer => getPath(stream, '/wait');
const code = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
const isOver = (): Promise<void> => expect.poll(() => client.isClosed).toBe(true);

test('an HTTP/2 request within all limits gets the response of the server', async () => {
  client.send(get(1));
  await expect
    .poll(() =>
      client
        .of(FRAME.data, 1)
        .map(({ body }) => body.toString())
        .join(''),
    )
    .toBe('ok');
  expect(client.of(FRAME.settings, 0).length).toBeGreaterThan(0);
});

test('a client that opens more than 100 concurrent HTTP/2 requests is disconnected', async () => {
  for (let stream = 1; stream < 200; stream += 2) client.send(wait(stream));
  await expect.poll(() => reached).toBe(100);
  client.send(wait(201));
  await isOver();
  expect(reached).toBe(100);
});

test('a client that cancels 1,000 HTTP/2 requests is disconnected', async () => {
  for (let stream = 1; stream < 2_400; stream += 2) {
    client.send(wait(stream), frame(FRAME.rst_stream, 0, stream, code(constants.NGHTTP2_CANCEL)));
  }
  await isOver();
  // The newest versions of Node 22 and 24 count cancelled streams themselves: they refuse further streams,
  // and end the session after 100 refused streams.
  const reasons = new Map<number | undefined, string>([[constants.NGHTTP2_ENHANCE_YOUR_CALM, 'rapid_reset']]);
  if (!process.versions.node.startsWith('20.')) reasons.set(constants.NGHTTP2_INTERNAL_ERROR, 'client_http2');
  expect(rig.refused).toContain(reasons.get(client.goaways.at(-1)) ?? 'a GOAWAY with another code');
  expect(reached).toBeLessThanOrEqual(1_200);
});

test('a client whose invalid frames make the service plane reset 1,000 HTTP/2 streams is disconnected', async () => {
  for (let stream = 1; stream < 2_400; stream += 2) {
    client.send(wait(stream), frame(FRAME.window_update, 0, stream, code(0)));
  }
  await isOver();
  expect(reached).toBeLessThanOrEqual(1_200);
});

test('HTTP/2 resets because of a forbidden trailer of the server do not count as resets of the client', async () => {
  for (let first = 1; first < 2_100; first += 100) {
    const streams = Array.from({ length: 50 }, (_, index) => first + 2 * index);
    client.send(...streams.map((stream) => getPath(stream, '/forbidden-trailer')));
    await expect.poll(() => client.isClosed || client.resetOf(first + 98) !== null).toBe(true);
  }
  expect(rig.refused.filter((reason) => reason === 'response_forbidden_trailer').length).toBeGreaterThanOrEqual(1_000);
  expect(rig.refused).not.toContain('rapid_reset');
});

test('a client that sends up to 10 MB of CONTINUATION frames without END_HEADERS is disconnected', async () => {
  client.send(frame(FRAME.headers, END_STREAM, 1, block(GET)));
  for (let count = 0; count < 1_000 && !client.isClosed; count++) {
    client.send(frame(FRAME.continuation, 0, 1, block([['x-a', 'x'.repeat(10_000)]])));
    await new Promise(setImmediate);
  }
  await isOver();
  expect(reached).toBe(0);
});

test('a client that sends many empty CONTINUATION frames is disconnected', async () => {
  client.send(frame(FRAME.headers, END_STREAM, 1, block(GET)));
  const nothing = Buffer.concat(Array.from({ length: 1_000 }, () => frame(FRAME.continuation, 0, 1)));
  for (let count = 0; count < 100 && !client.isClosed; count++) client.send(nothing);
  await isOver();
  expect(reached).toBe(0);
});

test('a client that sends many PING or SETTINGS frames without reading the responses is disconnected', async () => {
  for (const flood of [frame(FRAME.ping, 0, 0, Buffer.alloc(8)), frame(FRAME.settings, 0, 0)]) {
    const socket = await rig.dial();
    const flooder = new RawClient(socket);
    socket.pause();
    const many = Buffer.concat(Array.from({ length: 10_000 }, () => flood));
    // The service plane notices the flood only after the socket buffers of the kernel are full, so the test
    // sends up to 4 million frames.
    for (let count = 0; count < 400 && !socket.destroyed; count++) {
      flooder.send(many);
      await new Promise(setImmediate);
    }
    socket.resume();
    await expect.poll(() => flooder.isClosed).toBe(true);
  }
});

test('a header field that a request repeats by its HPACK table index counts toward the header limit each time', async () => {
  // The request adds the field to the HPACK table once (RFC 7541, 6.2.1), and then repeats it 10,000 times
  // with one byte each.
  const learn = Buffer.concat([
    Buffer.from([0x40]),
    integer(3, 7),
    Buffer.from('x-b'),
    integer(4_000, 7),
    Buffer.alloc(4_000, 'b'),
  ]);
  const bomb = Buffer.concat([block(GET), learn, Buffer.alloc(10_000, 0xbe)]);
  client.send(frame(FRAME.headers, END_STREAM | END_HEADERS, 1, bomb));
  await expect.poll(() => client.resetOf(1) ?? client.goaways.at(-1)).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  expect(reached).toBe(0);
});

test('an HTTP/2 request with more than 64 KiB of headers or more than 256 header fields is reset', async () => {
  const large = block([...GET, ...Array.from({ length: 6 }, (_, n) => [`x-${n}`, 'v'.repeat(12_000)] as const)]);
  const parts = Array.from({ length: Math.ceil(large.length / 16_000) }, (_, n) =>
    large.subarray(n * 16_000, (n + 1) * 16_000),
  );
  parts.forEach((part, index) => {
    const flags = (index === 0 ? END_STREAM : 0) | (index === parts.length - 1 ? END_HEADERS : 0);
    client.send(frame(index === 0 ? FRAME.headers : FRAME.continuation, flags, 1, part));
  });
  await expect.poll(() => client.resetOf(1)).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  client.send(get(3, ...Array.from({ length: 300 }, () => ['x', ''] as const)));
  await expect.poll(() => client.resetOf(3)).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  client.send(get(5));
  await expect.poll(() => client.of(FRAME.data, 5).length).toBeGreaterThan(0);
  expect(reached).toBe(1);
});

test.each<readonly [what: string, fields: readonly (readonly [string, string])[]]>([
  ['no path', GET.filter(([name]) => name !== ':path')],
  ['a relative path', [...GET.slice(0, 3), [':path', 'x']]],
  ['two paths', [...GET, [':path', '/']]],
  ['a pseudo-header after a header', [...GET.slice(0, 3), ['x', 'y'], [':path', '/']]],
  ['an unknown pseudo-header', [...GET, [':x', 'y']]],
  ['a :status', [...GET, [':status', '200']]],
  ['the protocol of an extended CONNECT', [[':method', 'CONNECT'], ...GET.slice(1), [':protocol', 'websocket']]],
  ['a connection field', [...GET, ['connection', 'close']]],
  ['a transfer coding', [...GET, ['transfer-encoding', 'chunked']]],
  ['another host than the authority', [...GET, ['host', 'other.test']]],
  ['a content-length without a body', [...GET, ['content-length', '5']]],
  ['the scheme http', GET.map(([name, value]) => [name, name === ':scheme' ? 'http' : value])],
])('an invalid HTTP/2 request (%s) does not reach the server', async (_what, fields) => {
  client.send(frame(FRAME.headers, END_STREAM | END_HEADERS, 1, block(fields)));
  await expect.poll(() => client.resetOf(1) !== null || client.of(FRAME.headers, 1).length > 0).toBe(true);
  client.send(get(3));
  await expect.poll(() => client.of(FRAME.data, 3).length).toBeGreaterThan(0);
  expect(reached).toBe(1);
});

test('HTTP/2 header fields with an invalid name or value do not reach the server', async () => {
  const seen: string[] = [];
  rig.server.on('stream', (_stream, headers) => seen.push(...Object.keys(headers)));
  const odd = [
    ['', 'empty name'],
    ['X-Upper', '1'],
    ['x y', '1'],
    ['x\ry', '1'],
    ['x-crlf', 'a\r\nevil: 1'],
    ['x-nul', 'a\0b'],
  ] as const;
  for (const [index, field] of odd.entries()) {
    const stream = 2 * index + 1;
    client.send(get(stream, field));
    await expect.poll(() => client.resetOf(stream) !== null || client.of(FRAME.headers, stream).length > 0).toBe(true);
  }
  expect(seen.filter((name) => !name.startsWith(':'))).toEqual([]);
});

test('an HTTP/2 request whose body length differs from its content-length is reset', async () => {
  const put = (stream: number, length: string, ...data: readonly string[]) => {
    const fields = [...GET.slice(1), ['content-length', length]] as const;
    client.send(frame(FRAME.headers, END_HEADERS, stream, block([[':method', 'PUT'], ...fields])));
    data.forEach((text, index) => {
      client.send(frame(FRAME.data, index === data.length - 1 ? END_STREAM : 0, stream, Buffer.from(text)));
    });
  };
  put(1, '5', 'abc', 'defgh');
  put(3, '9', 'abc');
  await expect.poll(() => client.resetOf(1)).toBe(constants.NGHTTP2_PROTOCOL_ERROR);
  await expect.poll(() => client.resetOf(3)).toBe(constants.NGHTTP2_PROTOCOL_ERROR);
});

test('a malformed HTTP/2 stream is reset, even if further frames arrive in the same read', async () => {
  const bad: readonly (readonly [string, string])[] = [...GET, ['connection', 'close']];
  const malformed = (stream: number) => frame(FRAME.headers, END_STREAM | END_HEADERS, stream, block(bad));
  client.send(get(1), malformed(3), get(5), frame(FRAME.ping, 0, 0, Buffer.alloc(8)), malformed(7), get(9));
  await expect.poll(() => client.resetOf(3)).toBe(constants.NGHTTP2_PROTOCOL_ERROR);
});
