import { constants } from 'node:http2';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isForbiddenTrailer } from '#service-plane/http/http1/trailers.js';
import { answerFrames, block, END_HEADERS, END_STREAM, FRAME, frame, GET, RawClient } from './frames.js';
import { createHttp2Rig, type Http2Rig } from './http2-rig.js';

type Fields = readonly (readonly [name: string, value: string])[];

let rig: Http2Rig;
let client: RawClient;
beforeEach(async () => {
  rig = await createHttp2Rig();
});
afterEach(() => rig.close());

/** All field names that Node's HTTP/2 API treats in a special way, and a field that it does not know. */
const NAMES: readonly string[] = [
  ...new Set(
    Object.entries(constants).flatMap(([key, value]) =>
      key.startsWith('HTTP2_HEADER_') && typeof value === 'string' && !value.startsWith(':') ? [value] : [],
    ),
  ),
  'x-unknown',
];
const VALUES: Readonly<Record<string, string>> = { te: 'trailers', expect: '100-continue', host: 'a.test' };
const twice = (name: string): Fields => {
  const value = VALUES[name] ?? '1';
  return [
    [name, value],
    [name, value],
  ];
};
const headers = (stream: number, flags: number, fields: Fields): Buffer =>
  frame(FRAME.headers, flags | END_HEADERS, stream, block(fields));
const POST: Fields = [[':method', 'POST'], ...GET.slice(1)];
const OK: Fields = [[':status', '200']];
const body = (stream: number): Buffer => frame(FRAME.data, 0, stream, Buffer.from('x'));

/** The fields that HTTP/2 forbids, and the fields that a head must not repeat. */
const REFUSED_IN_HEAD: readonly string[] = [
  'connection',
  'content-length',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
];
const REFUSED_IN_TRAILERS = NAMES.filter((name) => REFUSED_IN_HEAD.includes(name) || isForbiddenTrailer(name));

type Place = {
  request(stream: number, name: string): readonly Buffer[];
  response(stream: number, name: string): readonly Buffer[];
  /** The repeated field names for which the client must not get the whole response of the server. */
  readonly refused: readonly string[];
};
const get = (stream: number): readonly Buffer[] => [headers(stream, END_STREAM, GET)];
const ok = (stream: number): readonly Buffer[] => [headers(stream, END_STREAM, OK)];
const PLACES: Readonly<Record<string, Place>> = {
  request: {
    request: (stream, name) => [headers(stream, END_STREAM, [...GET, ...twice(name)])],
    response: ok,
    refused: REFUSED_IN_HEAD,
  },
  'request trailers': {
    request: (stream, name) => [headers(stream, 0, POST), body(stream), headers(stream, END_STREAM, twice(name))],
    response: ok,
    refused: REFUSED_IN_TRAILERS,
  },
  'interim response': {
    request: get,
    response: (stream, name) => [headers(stream, 0, [[':status', '103'], ...twice(name)]), ...ok(stream)],
    refused: REFUSED_IN_HEAD,
  },
  response: {
    request: get,
    response: (stream, name) => [headers(stream, END_STREAM, [...OK, ...twice(name)])],
    refused: REFUSED_IN_HEAD,
  },
  'response trailers': {
    request: get,
    response: (stream, name) => [headers(stream, 0, OK), body(stream), headers(stream, END_STREAM, twice(name))],
    refused: REFUSED_IN_TRAILERS,
  },
};
/** The first byte of a header block with the status 200 (RFC 7541, Appendix A). */
const STATUS_200 = 0x88;

/** Returns whether the client received the whole response of the server; null if the stream is still open. */
function isServed(stream: number): boolean | null {
  if (client.resetOf(stream) !== null || client.isClosed) return false;
  const frames = client.frames.filter((one) => one.stream === stream);
  if (!frames.some(({ flags }) => (flags & END_STREAM) !== 0)) return null;
  return frames.some((one) => one.type === FRAME.headers && one.body[0] === STATUS_200);
}

test.each(Object.entries(PLACES))(
  'a field name that occurs twice in one %s ends at most its own HTTP/2 stream, for each field name',
  async (_place, place) => {
    const { refused } = place;
    answerFrames(rig.server, (stream) => place.response(stream, NAMES[(stream - 1) / 2] ?? ''));
    client = new RawClient(await rig.dial());
    const found: string[] = [];
    for (const [index, name] of NAMES.entries()) {
      const stream = 2 * index + 1;
      client.send(...place.request(stream, name));
      await expect.poll(() => isServed(stream), { interval: 2 }).not.toBeNull();
      if (isServed(stream) === false) found.push(name);
    }
    expect(client.isClosed).toBe(false);
    expect(found.sort()).toEqual([...refused].sort());
  },
);
