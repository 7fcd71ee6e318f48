import { describe, expect, it } from 'vitest';
import type { HttpFault } from '#service-plane/http/fault.js';
import type { RequestOfResponse, ResponseHead } from '#service-plane/http/http1/response-head.js';
import { bytesOf, cutsOf, readResponse } from './pieces.js';

const get: RequestOfResponse = { method: 'GET', isWebSocket: false };
const head: RequestOfResponse = { method: 'HEAD', isWebSocket: false };
const upgrade: RequestOfResponse = { method: 'GET', isWebSocket: true };

const plain: ResponseHead = {
  version: '1.1',
  status: 200,
  reason: 'OK',
  headers: [],
  framing: 'until_close',
  keepsAlive: false,
};
const ok = 'HTTP/1.1 200 OK\r\n';
const length = (text: string) => ['content-length', text, 'Content-Length'] as const;

const accepted: readonly (readonly [asked: RequestOfResponse, text: string, differs: Partial<ResponseHead>])[] = [
  [get, `${ok}\r\n`, {}],
  [get, 'HTTP/1.0 200 OK\r\n\r\n', { version: '1.0' }],
  [get, 'HTTP/1.1 200\r\n\r\n', { reason: '' }],
  [get, 'HTTP/1.1 200 \r\n\r\n', { reason: '' }],
  [get, 'HTTP/1.1 404 N\xf6t  there\r\n\r\n', { status: 404, reason: 'N\xf6t  there' }],
  [get, `${ok}Content-Length: 3\r\n\r\n`, { headers: [length('3')], framing: 3, keepsAlive: true }],
  [get, 'HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n', { version: '1.0', headers: [length('3')], framing: 3 }],
  [get, `${ok}Content-Length: 3\r\nConnection: close\r\n\r\n`, { headers: [length('3')], framing: 3 }],
  [get, `${ok}Transfer-Encoding: chunked\r\n\r\n`, { framing: 'chunked', keepsAlive: true }],
  [get, `${ok}Transfer-Encoding: Chunked\r\nConnection: X\r\nX: y\r\n\r\n`, { framing: 'chunked', keepsAlive: true }],
  [head, `${ok}Content-Length: 3\r\n\r\n`, { headers: [length('3')], framing: 0, keepsAlive: true }],
  [head, `${ok}Transfer-Encoding: chunked\r\n\r\n`, { framing: 0, keepsAlive: true }],
  [
    get,
    'HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n',
    { status: 304, reason: 'Not Modified', headers: [length('3')], framing: 0, keepsAlive: true },
  ],
  [
    get,
    'HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n',
    { status: 204, reason: 'No Content', framing: 0, keepsAlive: true },
  ],
  [get, 'HTTP/1.1 100 Continue\r\n\r\n', { status: 100, reason: 'Continue', framing: 0, keepsAlive: true }],
  [
    get,
    'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n',
    { status: 103, reason: 'Early Hints', headers: [['link', '</a>', 'Link']], framing: 0, keepsAlive: true },
  ],
  [
    get,
    `${ok}Set-Cookie: a\r\nHost: x\r\nUpgrade: h2\r\nKeep-Alive: 5\r\nset-cookie: b\r\n\r\n`,
    {
      headers: [
        ['set-cookie', 'a', 'Set-Cookie'],
        ['host', 'x', 'Host'],
        ['set-cookie', 'b', 'set-cookie'],
      ],
    },
  ],
  [
    upgrade,
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n',
    {
      status: 101,
      reason: 'Switching Protocols',
      headers: [
        ['sec-websocket-accept', 'x', 'Sec-WebSocket-Accept'],
        ['upgrade', 'websocket', 'Upgrade'],
      ],
      framing: 0,
      keepsAlive: true,
    },
  ],
];

const refused: readonly (readonly [asked: RequestOfResponse, text: string, fault: HttpFault])[] = [
  [get, `${ok}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n`, 'conflicting_lengths'],
  [head, `${ok}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n`, 'conflicting_lengths'],
  [get, `${ok}Content-Length: 3\r\nContent-Length: 3\r\n\r\n`, 'repeated_content_length'],
  [get, `${ok}Content-Length: 3, 3\r\n\r\n`, 'content_length'],
  [get, `${ok}Content-Length: -1\r\n\r\n`, 'content_length'],
  [get, `${ok}Transfer-Encoding: gzip, chunked\r\n\r\n`, 'transfer_encoding'],
  [get, `${ok}Transfer-Encoding: identity\r\n\r\n`, 'transfer_encoding'],
  [get, 'HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', 'transfer_encoding'],
  [get, `${ok}A : b\r\n\r\n`, 'space_before_colon'],
  [get, `${ok}A: b\r\n c\r\n\r\n`, 'obs_fold'],
  [get, `${ok} A: b\r\n\r\n`, 'leading_space'],
  [get, `${ok}A: b\n\r\n`, 'bare_lf'],
  [get, `${ok}A: b\rc\r\n\r\n`, 'bare_cr'],
  [get, `${ok}A: b\0\r\n\r\n`, 'nul'],
  [get, 'HTTP/1.1 200 a\x01b\r\n\r\n', 'control_character'],
  [get, '\r\nHTTP/1.1 200 OK\r\n\r\n', 'status_line'],
  [get, 'HTTP/1.1  200 OK\r\n\r\n', 'status_line'],
  [get, 'HTTP/1.1 2000 OK\r\n\r\n', 'status_line'],
  [get, 'HTTP/1.1 20 OK\r\n\r\n', 'status_line'],
  [get, 'HTTP/1.1 099 OK\r\n\r\n', 'status_line'],
  [get, 'HTTP/1.1 600 OK\r\n\r\n', 'status_line'],
  [get, 'HTTP/1.1 +20 OK\r\n\r\n', 'status_line'],
  [get, 'HTTP/1.1 200\tOK\r\n\r\n', 'status_line'],
  [get, 'HTTP/1.12 200 OK\r\n\r\n', 'status_line'],
  [get, 'http/1.1 200 OK\r\n\r\n', 'status_line'],
  [get, 'ICY 200 OK\r\n\r\n', 'status_line'],
  [get, 'HTTP/2.0 200 OK\r\n\r\n', 'version'],
  [get, 'HTTP/1.2 200 OK\r\n\r\n', 'version'],
  [get, `${ok}Connection: content-length\r\nContent-Length: 3\r\n\r\n`, 'connection_option'],
  [get, 'HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n', 'unasked_upgrade'],
  [upgrade, 'HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n', 'unasked_upgrade'],
  [upgrade, 'HTTP/1.1 101 x\r\nUpgrade: websocket, h2c\r\nConnection: upgrade\r\n\r\n', 'unasked_upgrade'],
  [upgrade, 'HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n', 'unasked_upgrade'],
  [upgrade, 'HTTP/1.0 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n', 'unasked_upgrade'],
  [get, `${ok}X: ${'a'.repeat(70_000)}\r\n\r\n`, 'head_too_long'],
];

describe('ResponseHeadReader', () => {
  it.each(accepted)(
    '`ResponseHeadReader` accepts, after request %j, the response head %j for every split of its bytes',
    (asked, text, differs) => {
      const bytes = bytesOf(`${text}HTTP`);
      const expected = { result: { ...plain, ...differs }, end: bytes.length - 4 };
      for (const pieces of cutsOf(bytes)) expect(readResponse(asked, ...pieces)).toEqual(expected);
    },
  );

  it.each(refused.map(([asked, text, fault]) => [fault, asked, text.slice(0, 100), text] as const))(
    '`ResponseHeadReader` rejects with the fault %s, after the request %j, the response head %j, however the bytes are split into chunks',
    (fault, asked, _, text) => {
      const bytes = bytesOf(text);
      const splits =
        bytes.length < 1000 ? cutsOf(bytes) : [[bytes], [bytes.subarray(0, 50_000), bytes.subarray(50_000)]];
      for (const pieces of splits) expect(readResponse(asked, ...pieces)).toEqual({ result: { fault }, end: 0 });
    },
  );
});
