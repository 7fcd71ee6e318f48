import { describe, expect, it } from 'vitest';
import type { HttpFault } from '#service-plane/http/fault.js';
import { type Http2Request, readHttp2Request } from '#service-plane/http/http2/http2-request.js';

type Lines = readonly (readonly [name: string, value: string])[];

const pseudo: Lines = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':authority', 'a.test'],
  [':path', '/'],
];
const read = (...lines: Lines) => readHttp2Request(lines.flat());
const without = (name: string): Lines => pseudo.filter(([one]) => one !== name);
const changed = (name: string, value: string): Lines => pseudo.map(([one, old]) => [one, one === name ? value : old]);

const plain: Http2Request = {
  method: 'GET',
  host: 'a.test',
  path: '/',
  query: null,
  headers: [['host', 'a.test']],
  authority: 'a.test',
  port: null,
  length: null,
  expectsContinue: false,
};
const host = plain.headers;

const accepted: readonly (readonly [lines: Lines, differs: Partial<Http2Request>])[] = [
  [pseudo, {}],
  [[...pseudo].reverse(), {}],
  [[...pseudo, ['host', 'A.test']], {}],
  [[...without(':authority'), ['host', 'a.test']], {}],
  [changed(':path', '/a//b?c=d?e'), { path: '/a//b', query: 'c=d?e' }],
  [changed(':path', '//b.test/'), { path: '//b.test/' }],
  [
    changed(':authority', 'A.test.:8443'),
    { authority: 'A.test.:8443', port: 8443, headers: [['host', 'A.test.:8443']] },
  ],
  [
    [
      [':method', 'OPTIONS'],
      [':scheme', 'https'],
      [':authority', 'a.test'],
      [':path', '*'],
    ],
    { method: 'OPTIONS', path: '*' },
  ],
  [
    [...pseudo, ['x-a', 'b'], ['te', 'trailers'], ['x-a', '\xe4'], ['empty', '']],
    { headers: [...host, ['x-a', 'b'], ['te', 'trailers'], ['x-a', '\xe4'], ['empty', '']] },
  ],
  [
    [...pseudo, ['te', 'trailers'], ['x', 'y'], ['te', 'trailers']],
    { headers: [...host, ['te', 'trailers'], ['x', 'y']] },
  ],
  [
    [...pseudo, ['cookie', 'a=b'], ['x', 'y'], ['cookie', 'c=d']],
    { headers: [...host, ['x', 'y'], ['cookie', 'a=b; c=d']] },
  ],
  [
    [...pseudo, ['content-length', '5'], ['expect', '100-continue']],
    { headers: [...host, ['content-length', '5']], length: 5, expectsContinue: true },
  ],
];

const refused: readonly (readonly [lines: Lines, fault: HttpFault])[] = [
  [[], 'pseudo_header'],
  [without(':method'), 'pseudo_header'],
  [without(':scheme'), 'pseudo_header'],
  [without(':path'), 'pseudo_header'],
  [without(':authority'), 'no_host'],
  [[...pseudo, [':path', '/']], 'pseudo_header'],
  [[...pseudo, [':status', '200']], 'pseudo_header'],
  [[...pseudo, [':protocol', 'websocket']], 'pseudo_header'],
  [[...pseudo, [':x', 'y']], 'pseudo_header'],
  [[[':Method', 'GET'], ...pseudo], 'pseudo_header'],
  [[...without(':path'), ['x', 'y'], [':path', '/']], 'pseudo_header'],
  [changed(':scheme', 'http'), 'pseudo_header'],
  [changed(':method', 'CONNECT'), 'refused_method'],
  [
    [
      [':method', 'CONNECT'],
      [':authority', 'a.test:443'],
    ],
    'refused_method',
  ],
  [changed(':method', 'TRACE'), 'refused_method'],
  [changed(':method', 'get'), 'method'],
  [changed(':method', 'GET /x HTTP/1.1'), 'method'],
  [changed(':method', ''), 'method'],
  [changed(':path', ''), 'target'],
  [changed(':path', 'a'), 'target'],
  [changed(':path', '*'), 'asterisk_form'],
  [changed(':path', 'https://a.test/'), 'target'],
  [changed(':path', '/ HTTP/1.1'), 'target'],
  [changed(':path', '/a#b'), 'target'],
  [changed(':path', '/a\\b'), 'target'],
  [changed(':path', '/\xe4'), 'target'],
  [changed(':path', '/a\r\nX: y'), 'control_character'],
  [changed(':path', '/a\0'), 'nul'],
  [changed(':authority', ''), 'invalid_host'],
  [changed(':authority', 'a.test/'), 'invalid_host'],
  [changed(':authority', 'u@a.test'), 'userinfo'],
  [[...pseudo, ['host', 'b.test']], 'two_hosts'],
  [[...pseudo, ['host', 'a.test:443']], 'two_hosts'],
  [[...pseudo, ['host', 'a.test'], ['host', 'a.test']], 'two_hosts'],
  [[...without(':authority'), ['host', 'a.test'], ['host', 'b.test']], 'two_hosts'],
  [[...pseudo, ['X', 'y']], 'field_name'],
  [[...pseudo, ['x-user', 'a'], ['x_user', 'b']], 'ambiguous_names'],
  [[...pseudo, ['x_forwarded-for', 'a'], ['x-forwarded_for', 'b']], 'ambiguous_names'],
  [[...pseudo, ['content-length', '1'], ['content_length', '2']], 'ambiguous_names'],
  [[...pseudo, ['', 'y']], 'field_name'],
  [[...pseudo, ['x y', 'z']], 'field_name'],
  [[...pseudo, ['x:', 'z']], 'field_name'],
  [[...pseudo, ['x\r\ny', 'z']], 'field_name'],
  [[...pseudo, ['x\xe4', 'z']], 'field_name'],
  [[...pseudo, ['x', 'a\nb']], 'control_character'],
  [[...pseudo, ['x', 'a\rb']], 'control_character'],
  [[...pseudo, ['x', ' a']], 'control_character'],
  [[...pseudo, ['x', 'a\t']], 'control_character'],
  [[...pseudo, ['x', '\u0100']], 'control_character'],
  [[...pseudo, ['x', 'a\0b']], 'nul'],
  [[...pseudo, ['connection', 'close']], 'connection_field'],
  [[...pseudo, ['transfer-encoding', 'chunked']], 'connection_field'],
  [[...pseudo, ['upgrade', 'websocket']], 'connection_field'],
  [[...pseudo, ['keep-alive', '5']], 'connection_field'],
  [[...pseudo, ['proxy-connection', 'x']], 'connection_field'],
  [[...pseudo, ['http2-settings', 'x']], 'connection_field'],
  [[...pseudo, ['te', 'gzip']], 'connection_field'],
  [[...pseudo, ['content-length', '5'], ['content-length', '5']], 'repeated_content_length'],
  [[...pseudo, ['content-length', '5, 5']], 'content_length'],
  [[...pseudo, ['content-length', '']], 'content_length'],
  [[...pseudo, ['content-length', '-1']], 'content_length'],
  [[...pseudo, ['expect', 'x']], 'expectation'],
];

describe('readHttp2Request', () => {
  it.each(accepted)('`readHttp2Request` accepts the header block %j', (lines, differs) => {
    expect(read(...lines)).toEqual({ ...plain, ...differs });
  });

  it.each(refused)('`readHttp2Request` rejects the header block %j with the fault %s', (lines, fault) => {
    expect(read(...lines)).toEqual({ fault });
  });
});
