import { type ClientHttp2Session, type ClientHttp2Stream, constants, type ServerHttp2Stream } from 'node:http2';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { answerOf, open } from './http2-request.js';
import { createHttp2Rig, type Http2Rig } from './http2-rig.js';

const STREAMS = 100;
/** A body that is larger than the flow-control window of an HTTP/2 stream. */
const BODY = Buffer.alloc(300_000);
/** The most bytes that the service plane holds: a connection window, and two buffers for each stream. */
const MOST_HELD = 4 * 1024 * 1024 + STREAMS * 2 * 16_384;
const OPEN_WINDOW = { initialWindowSize: 1024 * 1024 };
const CLOSED_WINDOW = { initialWindowSize: 0 };

let rig: Http2Rig;
let served: ServerHttp2Stream[];
beforeEach(async () => {
  rig = await createHttp2Rig();
  served = [];
  rig.server.on('stream', (stream) => {
    stream.on('error', () => {});
    served.push(stream);
  });
});
afterEach(() => rig.close());

const isAllServed = (count: number): Promise<void> => expect.poll(() => served.length).toBe(count);
const ping = (session: ClientHttp2Session | ServerHttp2Stream['session']): Promise<void> =>
  new Promise((resolve) => session?.ping(() => resolve()));

/** Returns what `bytes` returns after the peers of `session` have exchanged all frames that they may send. */
async function settled(
  session: ClientHttp2Session | ServerHttp2Stream['session'],
  bytes: () => number,
): Promise<number> {
  for (let before = 0; ; before = bytes()) {
    await ping(session);
    await ping(session);
    // The PING frames themselves are a few hundred bytes.
    if (before > 0 && bytes() - before < 1_000) return before;
  }
}

test('a client that does not read 100 downloads makes the service plane hold a bounded number of bytes, and can read all of them later', async () => {
  const client = rig.client();
  client.settings(CLOSED_WINDOW);
  const answers = Array.from({ length: STREAMS }, () => answerOf(open(client, { ':path': '/' })));
  await isAllServed(STREAMS);
  for (const stream of served) {
    stream.respond({ ':status': 200 });
    stream.end(BODY);
  }
  const held = await settled(served[0]?.session, () => rig.links[0]?.bytesRead ?? 0);
  expect(held).toBeLessThan(MOST_HELD);
  client.settings(OPEN_WINDOW);
  const lengths = (await Promise.all(answers)).map(({ body }) => body.length);
  expect(lengths).toEqual(lengths.map(() => BODY.length));
});

test('a server that does not read 100 uploads makes the service plane hold a bounded number of bytes, and can read all of them later', async () => {
  rig.server.updateSettings({ ...CLOSED_WINDOW, maxConcurrentStreams: 200 });
  const client = rig.client();
  const uploads = Array.from({ length: STREAMS }, () => open(client, { ':method': 'POST', ':path': '/' }));
  const answers = uploads.map(answerOf);
  for (const upload of uploads) upload.end(BODY);
  await isAllServed(STREAMS);
  const held = await settled(client, () => client.socket.bytesWritten);
  expect(held).toBeLessThan(MOST_HELD);
  let received = 0;
  for (const stream of served) {
    stream.on('data', (chunk: Buffer) => {
      received += chunk.length;
    });
    stream.on('end', () => stream.respond({ ':status': 200 }, { endStream: true }));
  }
  served[0]?.session?.settings(OPEN_WINDOW);
  const statuses = (await Promise.all(answers)).map(({ status }) => status);
  expect(statuses).toEqual(statuses.map(() => 200));
  expect(received).toBe(STREAMS * BODY.length);
});

test('after the server resets the streams that a client does not read, another stream of the connection continues', async () => {
  const client = rig.client();
  client.settings(CLOSED_WINDOW);
  const resets = Array.from({ length: 40 }, () => answerOf(open(client, { ':path': '/' })));
  const last = answerOf(open(client, { ':path': '/' }));
  await isAllServed(41);
  const others = served.slice(0, 40);
  for (const stream of others) {
    stream.respond({ ':status': 200 });
    stream.end(BODY);
  }
  await settled(served[0]?.session, () => rig.links[0]?.bytesRead ?? 0);
  served[40]?.respond({ ':status': 200 });
  served[40]?.end(BODY);
  await ping(served[40]?.session);
  client.settings(OPEN_WINDOW);
  for (const stream of others) stream.close(constants.NGHTTP2_CANCEL);
  await Promise.all(resets);
  expect((await last).body.length).toBe(BODY.length);
});

test('the body of a denied HTTP/2 request is read and dropped, even if the client does not read the response', async () => {
  rig.rule({ request: { methods: ['GET'] } });
  const client = rig.client();
  client.settings(CLOSED_WINDOW);
  const upload: ClientHttp2Stream = open(client, { ':method': 'POST', ':path': '/' });
  upload.on('error', () => {});
  const isWritten = new Promise((resolve) => upload.once('finish', () => resolve(true)));
  upload.end(BODY);
  expect(await isWritten).toBe(true);
});
