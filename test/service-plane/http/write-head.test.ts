import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Header } from '#contracts/service-plane/http-facts.js';
import { areAmbiguous, type Framing } from '#service-plane/http/fields.js';
import type { RequestHead } from '#service-plane/http/http1/request-head.js';
import type { ResponseHead } from '#service-plane/http/http1/response-head.js';
import { writeRequestHead, writeResponseHead } from '#service-plane/http/http1/write-head.js';
import { bytesOf, readRequest, readResponse } from './pieces.js';

const written = (text: string, closes = false): string => {
  const { result } = readRequest(bytesOf(text));
  if (result === null || 'fault' in result) throw new Error(JSON.stringify(result));
  return writeRequestHead(result, { closes });
};

const answered = (text: string, framing?: Framing, closes = false): string => {
  const { result } = readResponse({ method: 'GET', isWebSocket: true }, bytesOf(text));
  if (result === null || 'fault' in result) throw new Error(JSON.stringify(result));
  return writeResponseHead(result, framing ?? result.framing, { closes });
};

const lines = (...all: readonly string[]): string => `${all.join('\r\n')}\r\n\r\n`;

const TOKEN_CHARACTERS = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const VALUE_CHARACTERS = `\t ${String.fromCharCode(...Array.from({ length: 94 }, (_, index) => 0x21 + index))}\x80\xe4\xff`;
const TARGET_CHARACTERS = VALUE_CHARACTERS.replace(/[\t #\\\x80-\xff]/g, '');

const text = (characters: string, minLength: number, maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit: fc.constantFrom(...characters), minLength, maxLength });

/**
 * Names of hop-by-hop and framing fields. Generated messages do not contain these fields, which have separate
 * tests.
 */
const OF_HOP =
  /^(te|host|expect|upgrade|keep-alive|connection|http2-settings|content-length|proxy-connection|transfer-encoding)$/;

const header: fc.Arbitrary<Header> = fc
  .tuple(text(TOKEN_CHARACTERS, 1, 20), text(VALUE_CHARACTERS, 0, 30))
  .filter(([sent]) => !OF_HOP.test(sent.toLowerCase()))
  .map(([sent, value]) => [sent.toLowerCase(), value.replace(/^[\t ]+|[\t ]+$/g, ''), sent] as const);

/**
 * Random request fields without ambiguous names. A request is refused if two names differ only in `_` and `-`
 * (`ambiguous_names`, tested with smuggling.ts).
 */
const requestHeaders = fc
  .array(header, { maxLength: 12 })
  .filter((headers) => !areAmbiguous(headers.map(([name]) => name)));

const framing = fc.oneof(fc.constant('chunked' as const), fc.nat(), fc.constant(null));
const length = (said: number | 'chunked' | null): Header[] =>
  typeof said === 'number' ? [['content-length', String(said), 'Content-Length']] : [];

const request: fc.Arbitrary<RequestHead> = fc
  .record({
    method: fc.constantFrom('GET', 'POST', 'PUT', 'OPTIONS', 'M-SEARCH', "X!#$%&'*+-.^_`|~"),
    host: fc.constantFrom('a.test', 'b-c.d_e.test', '[::1]'),
    port: fc.constantFrom(null, 1, 65_535),
    path: text(TARGET_CHARACTERS.replace('?', ''), 0, 30).map((rest) => `/${rest}`),
    query: fc.option(text(TARGET_CHARACTERS, 0, 30)),
    headers: requestHeaders,
    framing,
  })
  .map(({ framing: said, headers, host, port, ...rest }) => {
    const authority = port === null ? host : `${host}:${port}`;
    return {
      ...rest,
      host,
      port,
      headers: [['host', authority, 'Host'], ...headers, ...length(said)],
      version: '1.1',
      authority,
      framing: said ?? 0,
      isWebSocket: false,
      expectsContinue: false,
      keepsAlive: true,
    };
  });

const response: fc.Arbitrary<ResponseHead> = fc
  .record({
    status: fc.integer({ min: 200, max: 599 }).filter((status) => status !== 204 && status !== 304),
    reason: text(VALUE_CHARACTERS, 0, 20),
    headers: fc.array(header, { maxLength: 12 }),
    framing,
  })
  .map(({ framing: said, headers, ...rest }) => ({
    ...rest,
    headers: [...headers, ...length(said)],
    version: '1.1',
    framing: said ?? 'until_close',
    keepsAlive: said !== null,
  }));

describe('a written HTTP head', () => {
  it('a written HTTP head begins with Host, keeps the order and case of the other fields, and contains no hop-by-hop fields of the sender', () => {
    const head = lines(
      'POST https://a.test/x?y=z HTTP/1.1',
      'X-One: 1',
      'Connection: keep-alive, X-Two',
      'x-two: 2',
      'HOST: a.test',
      'Keep-Alive: timeout=5',
      'Proxy-Connection: keep-alive',
      'transfer-encoding: chunked',
      'Upgrade: h2c',
      'HTTP2-Settings: x',
      'TE: gzip',
      'x-three:3',
      'Expect: 100-continue',
    );
    expect(written(head)).toBe(
      lines('POST /x?y=z HTTP/1.1', 'Host: a.test', 'X-One: 1', 'x-three: 3', 'Transfer-Encoding: chunked'),
    );
    expect(written(lines('GET /? HTTP/1.0', 'host:a.test'), true)).toBe(
      lines('GET /? HTTP/1.1', 'Host: a.test', 'Connection: close'),
    );
  });

  it('a written HTTP head contains the TE option `trailers`, and no other TE option', () => {
    const head = lines('GET / HTTP/1.1', 'Host: a.test', 'TE: trailers, deflate', 'Connection: TE');
    expect(written(head)).toBe(lines('GET / HTTP/1.1', 'Host: a.test', 'TE: trailers', 'Connection: TE'));
    expect(written(head, true)).toBe(lines('GET / HTTP/1.1', 'Host: a.test', 'TE: trailers', 'Connection: close, TE'));
  });

  it('a written HTTP head contains the upgrade fields of a WebSocket request or response', () => {
    const key = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==';
    const head = lines(
      'GET / HTTP/1.1',
      'Host: a.test',
      'Connection: Upgrade, x',
      'Upgrade: h2c, websocket',
      key,
      'Sec-WebSocket-Version: 13',
    );
    expect(written(head)).toBe(
      lines(
        'GET / HTTP/1.1',
        'Host: a.test',
        key,
        'Sec-WebSocket-Version: 13',
        'Upgrade: websocket',
        'Connection: Upgrade',
      ),
    );
    expect(
      answered(lines('HTTP/1.1 101 Go', 'connection: upgrade', 'upgrade: websocket', 'Sec-WebSocket-Accept: x')),
    ).toBe(lines('HTTP/1.1 101 Go', 'Sec-WebSocket-Accept: x', 'Upgrade: websocket', 'Connection: Upgrade'));
  });

  it('a written HTTP head contains framing fields for the forwarded body in place of the received framing fields', () => {
    const inChunks = lines('HTTP/1.1 200 OK', 'Transfer-Encoding: chunked', 'A: b');
    expect(answered(inChunks)).toBe(lines('HTTP/1.1 200 OK', 'A: b', 'Transfer-Encoding: chunked'));
    expect(answered(inChunks, 'until_close', true)).toBe(lines('HTTP/1.1 200 OK', 'A: b', 'Connection: close'));
    expect(answered(lines('HTTP/1.0 200 OK', 'A: b'), 'chunked')).toBe(
      lines('HTTP/1.1 200 OK', 'A: b', 'Transfer-Encoding: chunked'),
    );
    expect(answered(lines('HTTP/1.1 103', 'Link: x', 'Content-Length: 5'), 0, true)).toBe(
      lines('HTTP/1.1 103 ', 'Link: x'),
    );
  });

  it('a written HTTP request head, parsed again, is equal to the original request', () => {
    fc.assert(
      fc.property(request, (model) => {
        const bytes = bytesOf(writeRequestHead(model, { closes: false }));
        expect(readRequest(bytes)).toEqual({ result: model, end: bytes.length });
      }),
      { numRuns: 1000 },
    );
  });

  it('a written HTTP response head, parsed again, is equal to the original response', () => {
    fc.assert(
      fc.property(response, (model) => {
        const bytes = bytesOf(writeResponseHead(model, model.framing, { closes: !model.keepsAlive }));
        expect(readResponse({ method: 'GET', isWebSocket: false }, bytes)).toEqual({
          result: model,
          end: bytes.length,
        });
      }),
      { numRuns: 1000 },
    );
  });
});
