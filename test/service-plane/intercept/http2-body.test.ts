import type { ServerHttp2Stream } from 'node:http2';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { block, END_HEADERS, END_STREAM, FRAME, type Frame, frame, GET, RawClient } from './frames.js';
import { createHttp2Rig, type Http2Rig } from './http2-rig.js';

let rig: Http2Rig;
let client: RawClient;
beforeEach(async () => {
  rig = await createHttp2Rig();
  client = new RawClient(await rig.dial());
});
afterEach(() => rig.close());

const onStream = (answer: (stream: ServerHttp2Stream) => void): void => {
  rig.server.on('stream', (stream) => {
    stream.on('error', () => {});
    answer(stream);
  });
};
const get = (stream: number): void => client.send(frame(FRAME.headers, END_STREAM | END_HEADERS, stream, block(GET)));
/**
 * Returns the received frames of a stream. `shape` returns the type of each frame, and whether the frame ends
 * the stream.
 */
const framesOf = (stream: number): readonly Frame[] => client.frames.filter((one) => one.stream === stream);
const shape = (stream: number): readonly (readonly [type: number, ends: boolean])[] =>
  framesOf(stream).map(({ type, flags }) => [type, (flags & END_STREAM) !== 0]);
const isOver = (stream: number): Promise<void> =>
  expect.poll(() => ((framesOf(stream).at(-1)?.flags ?? 0) & END_STREAM) !== 0).toBe(true);

test('a response body that arrives together with its head ends the stream with its last DATA frame', async () => {
  onStream((stream) => {
    stream.respond({ ':status': 200 });
    stream.end('ok');
  });
  get(1);
  await isOver(1);
  expect(shape(1)).toEqual([
    [FRAME.headers, false],
    [FRAME.data, true],
  ]);
});

test('the trailers of a response body that arrives together with its head are forwarded after the body', async () => {
  onStream((stream) => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.end('ok');
  });
  get(1);
  await isOver(1);
  expect(shape(1).filter(([type]) => type === FRAME.headers)).toEqual([
    [FRAME.headers, false],
    [FRAME.headers, true],
  ]);
});

test('a response body that arrives in several parts is forwarded part by part', async () => {
  let stream: ServerHttp2Stream | null = null;
  onStream((its) => {
    stream = its;
    its.respond({ ':status': 200 });
    its.write('one');
  });
  get(1);
  const said = (): string =>
    client
      .of(FRAME.data, 1)
      .map(({ body }) => body.toString())
      .join('');
  await expect.poll(said).toBe('one');
  (stream as ServerHttp2Stream | null)?.write(' two');
  await expect.poll(said).toBe('one two');
  (stream as ServerHttp2Stream | null)?.end();
  await isOver(1);
});

test('a response head is forwarded immediately if no body data has arrived', async () => {
  onStream((stream) => stream.respond({ ':status': 200 }));
  get(1);
  await expect.poll(() => shape(1)).toEqual([[FRAME.headers, false]]);
});

test('the head of a response with an empty body ends the stream', async () => {
  onStream((stream) => {
    stream.respond({ ':status': 200 });
    stream.end();
  });
  get(1);
  await isOver(1);
  expect(shape(1)).toEqual([[FRAME.headers, true]]);
});

test('a request without a body reaches the server as HEADERS with END_STREAM, and a request with a body as HEADERS without END_STREAM', async () => {
  const asked: (readonly [ends: boolean, body: string])[] = [];
  rig.server.on('stream', (stream, _headers, flags) => {
    let body = '';
    stream.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    stream.on('end', () => {
      asked.push([(flags & END_STREAM) !== 0, body]);
      stream.respond({ ':status': 200 }, { endStream: true });
    });
  });
  const post = block([[':method', 'POST'], ...GET.slice(1)]);
  client.send(frame(FRAME.headers, END_HEADERS, 1, post), frame(FRAME.data, END_STREAM, 1, Buffer.from('in')));
  client.send(frame(FRAME.headers, END_HEADERS, 3, post), frame(FRAME.data, END_STREAM, 3));
  await isOver(1);
  await isOver(3);
  expect(asked.sort()).toEqual([
    [false, 'in'],
    [true, ''],
  ]);
});
