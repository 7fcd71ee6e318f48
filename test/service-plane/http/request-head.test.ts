import { describe, expect, it } from 'vitest';
import { FAULT_STATUS, type HttpFault } from '#service-plane/http/fault.js';
import { type RequestHead, RequestHeadReader } from '#service-plane/http/http1/request-head.js';
import { bytesOf, cutsOf, readRequest } from './pieces.js';
import { SMUGGLING } from './smuggling.js';

const plain: RequestHead = {
  method: 'GET',
  host: 'a.test',
  path: '/',
  query: null,
  headers: [['host', 'a.test', 'Host']],
  version: '1.1',
  authority: 'a.test',
  port: null,
  framing: 0,
  isWebSocket: false,
  expectsContinue: false,
  keepsAlive: true,
};
const HOST = 'Host: a.test\r\n';
const KEY = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
const websocket = [
  ['host', 'a.test', 'Host'],
  ['sec-websocket-key', 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Key'],
  ['sec-websocket-version', '13', 'Sec-WebSocket-Version'],
] as const;

const accepted: readonly (readonly [text: string, differs: Partial<RequestHead>])[] = [
  [`GET / HTTP/1.1\r\n${HOST}\r\n`, {}],
  [`\r\nGET / HTTP/1.1\r\n${HOST}\r\n`, {}],
  [`GET / HTTP/1.0\r\n${HOST}\r\n`, { version: '1.0', keepsAlive: false }],
  [`GET / HTTP/1.0\r\n${HOST}Connection: keep-alive\r\n\r\n`, { version: '1.0', keepsAlive: false }],
  [`DELETE /a/b?c=d?e HTTP/1.1\r\n${HOST}\r\n`, { method: 'DELETE', path: '/a/b', query: 'c=d?e' }],
  [`GET /? HTTP/1.1\r\n${HOST}\r\n`, { query: '' }],
  [`GET //b.test/ HTTP/1.1\r\n${HOST}\r\n`, { path: '//b.test/' }],
  [`GET /%zz"<>[]^\`{|}~ HTTP/1.1\r\n${HOST}\r\n`, { path: '/%zz"<>[]^`{|}~' }],
  [`GET https://a.test HTTP/1.1\r\n${HOST}\r\n`, {}],
  [`GET HTTP://A.test/x HTTP/1.1\r\n${HOST}\r\n`, { path: '/x' }],
  [`GET https://a.test?x HTTP/1.1\r\n${HOST}\r\n`, { query: 'x' }],
  [`OPTIONS * HTTP/1.1\r\n${HOST}\r\n`, { method: 'OPTIONS', path: '*' }],
  [`OPTIONS https://a.test HTTP/1.1\r\n${HOST}\r\n`, { method: 'OPTIONS', path: '*' }],
  [`OPTIONS https://a.test/ HTTP/1.1\r\n${HOST}\r\n`, { method: 'OPTIONS' }],
  [`M-SEARCH / HTTP/1.1\r\n${HOST}\r\n`, { method: 'M-SEARCH' }],
  [
    `GET / HTTP/1.1\r\nhost: \t A.Test.:8443 \t\r\n\r\n`,
    { headers: [['host', 'A.Test.:8443', 'host']], authority: 'A.Test.:8443', port: 8443 },
  ],
  [
    'GET / HTTP/1.1\r\nHost: [2001:DB8::1]:443\r\n\r\n',
    {
      host: '[2001:db8::1]',
      headers: [['host', '[2001:DB8::1]:443', 'Host']],
      authority: '[2001:DB8::1]:443',
      port: 443,
    },
  ],
  [
    `GET / HTTP/1.1\r\n${HOST}X-A:b\r\nx-a:\tc\xe4, d \t \r\nEmpty:\r\n\r\n`,
    { headers: [...plain.headers, ['x-a', 'b', 'X-A'], ['x-a', 'c\xe4, d', 'x-a'], ['empty', '', 'Empty']] },
  ],
  [
    `POST / HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\n`,
    { method: 'POST', headers: [...plain.headers, ['content-length', '5', 'Content-Length']], framing: 5 },
  ],
  [
    `POST / HTTP/1.1\r\n${HOST}Content-Length: 9007199254740991\r\nExpect: 100-Continue\r\n\r\n`,
    {
      method: 'POST',
      headers: [...plain.headers, ['content-length', '9007199254740991', 'Content-Length']],
      framing: Number.MAX_SAFE_INTEGER,
      expectsContinue: true,
    },
  ],
  [
    `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: CHUNKED\r\nTrailer: x\r\n\r\n`,
    { method: 'POST', headers: [...plain.headers, ['trailer', 'x', 'Trailer']], framing: 'chunked' },
  ],
  [`GET / HTTP/1.1\r\n${HOST}Expect: 100-continue\r\n\r\n`, {}],
  [
    `GET / HTTP/1.1\r\n${HOST}Connection: Close, X-A,, TE\r\nX-a: 1\r\nX-B: 2\r\nTE: gzip, Trailers\r\nProxy-Connection: x\r\nKeep-Alive: 5\r\n\r\n`,
    { headers: [...plain.headers, ['x-b', '2', 'X-B'], ['te', 'trailers', 'TE']], keepsAlive: false },
  ],
  [
    `GET / HTTP/1.1\r\n${HOST}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAA\r\n\r\n`,
    {},
  ],
  [
    `GET / HTTP/1.1\r\n${HOST}Upgrade: WebSocket, h2c\r\nConnection: keep-alive, Upgrade\r\n${KEY}Sec-WebSocket-Version: 13\r\n\r\n`,
    { headers: [...websocket, ['upgrade', 'websocket', 'Upgrade']], isWebSocket: true },
  ],
  [`GET / HTTP/1.1\r\n${HOST}Upgrade: websocket\r\n${KEY}Sec-WebSocket-Version: 13\r\n\r\n`, { headers: websocket }],
  [
    `GET / HTTP/1.1\r\n${HOST}Upgrade: websocket\r\nConnection: Upgrade, Sec-WebSocket-Version\r\n${KEY}Sec-WebSocket-Version: 13\r\n\r\n`,
    { headers: websocket.slice(0, 2) },
  ],
  [
    `GET / HTTP/1.0\r\n${HOST}Upgrade: websocket\r\nConnection: Upgrade\r\n${KEY}Sec-WebSocket-Version: 13\r\n\r\n`,
    { version: '1.0', keepsAlive: false, headers: websocket },
  ],
  [
    `GET / HTTP/1.1\r\n${HOST}Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: short\r\nSec-WebSocket-Version: 13\r\n\r\n`,
    { headers: [...plain.headers, ['sec-websocket-key', 'short', 'Sec-WebSocket-Key'], ...websocket.slice(2)] },
  ],
];

describe('RequestHeadReader', () => {
  it.each(accepted)('`RequestHeadReader` accepts the request head %j', (text, differs) => {
    const bytes = bytesOf(text);
    expect(readRequest(bytes)).toEqual({ result: { ...plain, ...differs }, end: bytes.length });
  });

  it.each(accepted)('`RequestHeadReader` accepts the request head %j for every split of the bytes', (text, differs) => {
    const bytes = bytesOf(`${text}GET`);
    const expected = { result: { ...plain, ...differs }, end: bytes.length - 3 };
    for (const pieces of cutsOf(bytes)) expect(readRequest(...pieces)).toEqual(expected);
  });

  it.each(SMUGGLING.map(([text, fault]) => [fault, text.slice(0, 120), text] as const))(
    '`RequestHeadReader` returns the fault %s for the request head %j',
    (fault, _, text) => {
      expect(readRequest(bytesOf(text))).toEqual({ result: { fault }, end: 0 });
    },
  );

  it.each(SMUGGLING.filter(([text]) => text.length < 1000))(
    '`RequestHeadReader` rejects the request head %j with one fault for every split of the bytes into two chunks and into single bytes',
    (text, fault) => {
      for (const pieces of cutsOf(bytesOf(text))) expect(readRequest(...pieces)).toEqual({ result: { fault }, end: 0 });
    },
  );

  it('`RequestHeadReader` maps each fault to the HTTP status 400, 417, 421, 431, 501 or 505', () => {
    expect(new Set(Object.values(FAULT_STATUS))).toEqual(new Set([400, 417, 421, 431, 501, 505]));
  });

  it('`RequestHeadReader` returns a fault as soon as it has read the byte that causes the fault', () => {
    const faults: [string, HttpFault][] = [
      ['GET / HTTP/1.1\n', 'bare_lf'],
      ['GET / HTTP/1.1\r\nA b', 'space_before_colon'],
      ['GET / HTTP/1.1\r\nA: b\r\n ', 'obs_fold'],
    ];
    for (const [text, fault] of faults) expect(readRequest(bytesOf(text))).toEqual({ result: { fault }, end: 0 });
  });

  it('`RequestHeadReader` accepts a request head of up to 64 KiB and 256 fields, and rejects a larger head', () => {
    const head = (length: number): Buffer => {
      const start = `GET / HTTP/1.1\r\n${HOST}X: `;
      return bytesOf(`${start}${'a'.repeat(length - start.length - 4)}\r\n\r\n`);
    };
    expect(readRequest(head(65_536)).end).toBe(65_536);
    expect(readRequest(head(65_537)).result).toEqual({ fault: 'head_too_long' });
    expect(readRequest(head(65_537).subarray(0, 60_000), head(65_537).subarray(60_000)).result).toEqual({
      fault: 'head_too_long',
    });
    const fields = (count: number): Buffer => bytesOf(`GET / HTTP/1.1\r\n${HOST}${'a: b\r\n'.repeat(count - 1)}\r\n`);
    expect(readRequest(fields(256)).end).toBe(fields(256).length);
    expect(readRequest(fields(257)).result).toEqual({ fault: 'too_many_fields' });
  });

  it('`RequestHeadReader` reads three request heads from one chunk, although the third head continues in the next chunk', () => {
    const reader = new RequestHeadReader();
    const bytes = bytesOf(`GET /1 HTTP/1.1\r\n${HOST}\r\nGET /2 HTTP/1.1\r\n${HOST}\r\nGET /3`);
    const paths: unknown[] = [];
    let at = 0;
    for (let head = reader.push(bytes); head !== null; head = reader.push(bytes, at)) {
      paths.push('path' in head ? head.path : head);
      at = reader.end;
    }
    expect([paths, reader.isInside]).toEqual([['/1', '/2'], true]);
    expect(reader.push(bytesOf(` HTTP/1.1\r\n${HOST}\r\n`))).toEqual({ ...plain, path: '/3' });
    expect(reader.isInside).toBe(false);
  });

  it('`RequestHeadReader` returns its first fault again for a valid request head that follows', () => {
    const reader = new RequestHeadReader();
    const refused = reader.push(bytesOf('\n'));
    expect([refused, reader.push(bytesOf(`GET / HTTP/1.1\r\n${HOST}\r\n`))]).toEqual([refused, { fault: 'bare_lf' }]);
  });
});
