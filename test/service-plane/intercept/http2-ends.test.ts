import { type ClientHttp2Session, constants, type ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AT_ONCE, END, ENDS, type End } from './connection-end.js';
import { answerOf, fetch, open } from './http2-request.js';
import { createHttp2Rig, type Http2Rig } from './http2-rig.js';

let rig: Http2Rig;
let client: ClientHttp2Session;
/** The server's streams of requests for paths that begin with `/wait`. */
let streams: ServerHttp2Stream[];
beforeEach(async () => {
  rig = await createHttp2Rig();
  streams = [];
  rig.server.on('sessionError', () => {});
  rig.server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    if (String(headers[':path']).startsWith('/wait')) streams.push(stream);
    else stream.respond({ ':status': 200 }, { endStream: true });
  });
  client = rig.client();
  expect((await fetch(client)).status).toBe(200);
});
afterEach(() => rig.close());

/** Sends a request from a client. Resolves when the server has received the request. */
async function asked(path = '/wait') {
  const before = streams.length;
  const stream = open(client, { ':path': path });
  const answer = answerOf(stream);
  await expect.poll(() => streams.length, AT_ONCE).toBe(before + 1);
  return { stream, answer, server: streams[before] as ServerHttp2Stream };
}
function endServer(end: End): void {
  END[end](rig.serverSockets[0] as TLSSocket);
}
function endClient(end: End): void {
  END[end](rig.clientSockets[0] as TLSSocket);
}
const isAllOver = (): unknown => [rig.sessions.size, rig.links.every(({ destroyed }) => destroyed)];

describe('the end of a server connection', () => {
  test.each(ENDS)(
    'the end of a server connection before the response head is answered with 502, and the HTTP/2 client gets GOAWAY (end by %s)',
    async (end) => {
      const { answer } = await asked();
      const gone = new Promise((resolve) => client.once('goaway', resolve));
      const late = new Promise((resolve) => setTimeout(resolve, AT_ONCE.timeout, 'late'));
      endServer(end);
      expect(await Promise.race([answer, late])).toMatchObject({ status: 502, isWhole: true });
      expect(await Promise.race([gone, late])).toBe(constants.NGHTTP2_NO_ERROR);
      expect(rig.refused).toContain('server_closed');
      await expect.poll(isAllOver, AT_ONCE).toEqual([0, true]);
    },
  );

  test.each(ENDS)(
    'the end of a server connection within a response body resets the HTTP/2 stream (end by %s)',
    async (end) => {
      const { answer, server, stream } = await asked();
      server.respond({ ':status': 200 });
      server.write('part');
      await new Promise((resolve) => stream.once('data', resolve));
      const late = new Promise((resolve) => setTimeout(resolve, AT_ONCE.timeout, 'late'));
      endServer(end);
      expect(await Promise.race([answer, late])).toMatchObject({
        body: 'part',
        isWhole: false,
        code: constants.NGHTTP2_INTERNAL_ERROR,
      });
      await expect.poll(isAllOver, AT_ONCE).toEqual([0, true]);
    },
  );

  test.each(ENDS)(
    'an HTTP/2 client that reads slowly gets the whole response although the server connection has ended (end by %s)',
    async (end) => {
      const { answer, server, stream } = await asked();
      // The body fits into the window of a stream, so the server can send all of it to the node.
      const body = Buffer.alloc(200_000, 'x');
      stream.pause();
      server.respond({ ':status': 200 }, { waitForTrailers: true });
      server.on('wantTrailers', () => server.sendTrailers({ 'x-end': '1' }));
      server.end(body);
      const [link] = rig.links;
      await expect.poll(() => server.destroyed && (link?.bytesRead ?? 0) > body.length, AT_ONCE).toBe(true);
      endServer(end);
      await expect.poll(() => link?.destroyed, AT_ONCE).toBe(true);
      stream.resume();
      const { body: got, isWhole, trailers } = await answer;
      expect([got.length, isWhole, trailers]).toEqual([body.length, true, { 'x-end': '1' }]);
    },
  );

  test.each(ENDS)(
    'the end of an idle server connection ends the HTTP/2 client connection by GOAWAY, and the next request uses new connections (end by %s)',
    async (end) => {
      const ended = new Promise((resolve) => client.once('close', resolve));
      const gone = new Promise((resolve) => client.once('goaway', resolve));
      const late = new Promise((resolve) => setTimeout(resolve, AT_ONCE.timeout, 'late'));
      endServer(end);
      expect(await Promise.race([gone, late])).toBe(constants.NGHTTP2_NO_ERROR);
      expect(await Promise.race([ended, late])).not.toBe('late');
      expect((await fetch(rig.client())).status).toBe(200);
      expect(rig.links.length).toBe(2);
    },
  );

  test('the end of a server connection is sent on as GOAWAY, and the requests that have begun are completed', async () => {
    const { answer, server } = await asked();
    server.session?.close();
    await expect.poll(() => client.closed || client.destroyed, AT_ONCE).toBe(true);
    server.respond({ ':status': 200 });
    server.end('last');
    expect(await answer).toMatchObject({ body: 'last', isWhole: true });
    await expect.poll(isAllOver, AT_ONCE).toEqual([0, true]);
  });
});

test.each([
  [constants.NGHTTP2_NO_ERROR, constants.NGHTTP2_INTERNAL_ERROR],
  [constants.NGHTTP2_CANCEL, constants.NGHTTP2_CANCEL],
])(
  'RST_STREAM of the server with code %i within a response body resets the stream of the client with code %i',
  async (code, seen) => {
    const { answer, server, stream } = await asked();
    server.respond({ ':status': 200 }, { waitForTrailers: true });
    server.write('part');
    await new Promise((resolve) => stream.once('data', resolve));
    server.close(code);
    expect(await answer).toMatchObject({ body: 'part', isWhole: false, code: seen });
  },
);

describe('the end of a client connection', () => {
  test.each(ENDS)(
    'the end of an HTTP/2 client connection without requests ends the server connection (end by %s)',
    async (end) => {
      endClient(end);
      await expect.poll(isAllOver, AT_ONCE).toEqual([0, true]);
    },
  );

  test.each(ENDS)(
    'the end of an HTTP/2 client connection cancels a request that waits for its response at the server (end by %s)',
    async (end) => {
      const { server } = await asked();
      endClient(end);
      await expect.poll(() => server.destroyed, AT_ONCE).toBe(true);
      await expect.poll(isAllOver, AT_ONCE).toEqual([0, true]);
    },
  );

  test.each(ENDS)(
    'the end of an HTTP/2 client connection within a response body cancels the request at the server (end by %s)',
    async (end) => {
      const { server, stream } = await asked();
      server.respond({ ':status': 200 });
      server.write('part');
      await new Promise((resolve) => stream.once('data', resolve));
      endClient(end);
      await expect.poll(() => server.destroyed, AT_ONCE).toBe(true);
      await expect.poll(isAllOver, AT_ONCE).toEqual([0, true]);
    },
  );

  test('the end of an HTTP/2 client connection by GOAWAY ends the server connection', async () => {
    client.close();
    await expect.poll(isAllOver, AT_ONCE).toEqual([0, true]);
  });
});
