import { constants, type ServerHttp2Stream } from 'node:http2';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { answerOf, fetch, open } from './http2-request.js';
import { createHttp2Rig, type Http2Rig } from './http2-rig.js';

/** Five minutes, in ticks of five seconds. */
const FIVE_MINUTES = 60;

let rig: Http2Rig;
let streams: ServerHttp2Stream[];
beforeEach(async () => {
  rig = await createHttp2Rig();
  streams = [];
  rig.server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    if (headers[':path'] === '/wait') streams.push(stream);
    else stream.respond({ ':status': 200 }, { endStream: true });
  });
});
afterEach(() => rig.close());

function pass(ticks: number): void {
  rig.clock.tick += ticks;
  for (const session of rig.sessions) session.checkTimeouts();
}

test('an HTTP/2 request without a response for more than five minutes gets status 504 and is cancelled at the server, while another request continues', async () => {
  const client = rig.client();
  const first = answerOf(open(client, { ':path': '/wait' }));
  await expect.poll(() => streams.length).toBe(1);
  pass(FIVE_MINUTES);
  const second = answerOf(open(client, { ':path': '/wait' }));
  await expect.poll(() => streams.length).toBe(2);
  pass(1);
  expect(await first).toMatchObject({ status: 504, isWhole: true });
  await expect.poll(() => streams[0]?.rstCode).toBe(constants.NGHTTP2_CANCEL);
  expect(rig.refused).toEqual(['idle']);
  streams[1]?.respond({ ':status': 200 }, { endStream: true });
  expect((await second).status).toBe(200);
});

test('an HTTP/2 response that makes no progress for more than five minutes is reset at client and server', async () => {
  const stream = open(rig.client(), { ':path': '/wait' });
  const answer = answerOf(stream);
  await expect.poll(() => streams.length).toBe(1);
  const came = new Promise((resolve) => stream.once('data', resolve));
  streams[0]?.respond({ ':status': 200 });
  streams[0]?.write('part');
  await came;
  pass(FIVE_MINUTES + 1);
  expect(await answer).toMatchObject({ status: 200, isWhole: false, code: constants.NGHTTP2_CANCEL });
  await expect.poll(() => streams[0]?.rstCode).toBe(constants.NGHTTP2_CANCEL);
});

test('an HTTP/2 response is not reset if it makes progress at least every five minutes', async () => {
  const client = rig.client();
  const stream = open(client, { ':path': '/wait' });
  const answer = answerOf(stream);
  await expect.poll(() => streams.length).toBe(1);
  streams[0]?.respond({ ':status': 200 });
  for (const part of ['a', 'b', 'c']) {
    const came = new Promise((resolve) => stream.once('data', resolve));
    pass(FIVE_MINUTES);
    streams[0]?.write(part);
    await came;
  }
  pass(FIVE_MINUTES);
  streams[0]?.end();
  expect(await answer).toMatchObject({ body: 'abc', isWhole: true });
});

test('an HTTP/2 client without requests for more than five minutes receives GOAWAY', async () => {
  const client = rig.client();
  const gone = new Promise((resolve) => client.once('goaway', resolve));
  await fetch(client);
  await expect.poll(() => rig.sessions.size).toBe(1);
  pass(FIVE_MINUTES);
  expect(client.closed).toBe(false);
  pass(1);
  expect(await gone).toBe(constants.NGHTTP2_NO_ERROR);
  await expect.poll(() => rig.sessions.size).toBe(0);
});
