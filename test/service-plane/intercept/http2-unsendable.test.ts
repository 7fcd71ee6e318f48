import { constants } from 'node:http2';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type Answer, answerOf, fetch, open } from './http2-request.js';
import { createHttp2Rig, type Http2Rig } from './http2-rig.js';

const UNSENDABLE = { 'x-unsendable': '1' };

/**
 * Makes a method of Node throw for the field `x-unsendable` of a header object without a prototype, which
 * only the service plane passes. Node itself accepts each head that passes its checks.
 */
function refuseUnsendable(owner: object, method: string): void {
  const prototype = Object.getPrototypeOf(owner) as Record<string, (lines: object, options?: object) => unknown>;
  const original = prototype[method];
  vi.spyOn(prototype, method).mockImplementation(function (this: unknown, lines, options) {
    if (Object.getPrototypeOf(lines) === null && 'x-unsendable' in lines) throw new Error('refused');
    return original?.call(this, lines, options);
  });
}

let rig: Http2Rig;
let isPatched = false;
beforeEach(async () => {
  rig = await createHttp2Rig();
  rig.server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    if (!isPatched) {
      for (const method of ['additionalHeaders', 'respond', 'sendTrailers']) refuseUnsendable(stream, method);
      isPatched = true;
    }
    const path = headers[':path'];
    if (path === '/request-trailers') return;
    if (path === '/interim') stream.additionalHeaders({ ':status': 103, ...UNSENDABLE });
    stream.respond({ ':status': 200, ...(path === '/response' ? UNSENDABLE : {}) }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers(path === '/trailers' ? UNSENDABLE : {}));
    stream.end('ok');
  });
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rig.close();
});

const codeOf = ({ code }: Answer): number => code;

test('if Node refuses to send a head or trailers, only that HTTP/2 request is reset, and the reason is recorded', async () => {
  const client = rig.client();
  refuseUnsendable(client, 'request');
  const other = fetch(client);
  const answers = [
    await fetch(client, { ':path': '/request', ...UNSENDABLE }),
    await fetch(client, { ':path': '/interim' }),
    await fetch(client, { ':path': '/response' }),
    await fetch(client, { ':path': '/trailers' }),
  ];
  const upload = open(client, { ':method': 'POST', ':path': '/request-trailers' }, { waitForTrailers: true });
  refuseUnsendable(upload, 'sendTrailers');
  upload.on('wantTrailers', () => upload.sendTrailers(UNSENDABLE));
  upload.end('body');
  answers.push(await answerOf(upload));
  expect(answers.map(codeOf)).toEqual(answers.map(() => constants.NGHTTP2_INTERNAL_ERROR));
  expect(rig.refused).toEqual([
    'request_unsendable',
    'response_unsendable',
    'response_unsendable',
    'response_unsendable',
    'request_unsendable',
  ]);
  expect([(await other).body, (await fetch(client)).body]).toEqual(['ok', 'ok']);
});
