import { describe, expect, it } from 'vitest';
import { AnswerReader } from '#service-plane/tls/answer-reader.js';
import { mayFollow } from '#service-plane/tls/hello/second-hello.js';
import { split } from './chunks.js';
import {
  alpnOf,
  echOf,
  extension,
  type HelloParts,
  helloMessage,
  message,
  record,
  records,
  serverHello,
  sniOf,
  u8,
  u16,
  vector8,
  vector16,
  versionsOf,
} from './hello-bytes.js';
import { RETRY, retryOf } from './retry.js';

const HEADER = 4;
const bodyOf = (parts: HelloParts): Buffer => helloMessage(parts).subarray(HEADER);
const share = (group: number): Buffer => extension(51, vector16(u16(group), vector16(Buffer.alloc(8, group))));
const cookie = (text: string): Buffer => extension(44, vector16(Buffer.from(text)));
const keys = (age: number, ...identities: readonly string[]): Buffer =>
  extension(
    41,
    vector16(...identities.map((identity) => Buffer.concat([vector16(Buffer.from(identity)), u16(0), u16(age)]))),
    vector16(...identities.map(() => vector8(Buffer.alloc(32, age)))),
  );
const plain = [sniOf('a.test'), alpnOf('h2'), versionsOf(0x0304)];
const first = [...plain, share(29)];

describe('mayFollow after a HelloRetryRequest', () => {
  it.each<[string, Buffer, readonly Buffer[], readonly Buffer[]]>([
    ['with the requested key share', RETRY, first, [...plain, share(24)]],
    ['without early data', RETRY, [...plain, extension(42), share(29)], [...plain, share(24)]],
    ['with the cookie', retryOf(cookie('c')), first, [cookie('c'), ...first]],
    [
      'with key share and cookie',
      retryOf(extension(51, u16(24)), cookie('c')),
      first,
      [...plain, share(24), cookie('c')],
    ],
    ['with padding', RETRY, first, [...plain, share(24), extension(21, Buffer.alloc(9))]],
    ['with other padding', RETRY, [...first, extension(21)], [...plain, extension(21, u8(0)), share(24)]],
    ['without its padding', RETRY, [...first, extension(21)], [...plain, share(24)]],
    ['with new binders', RETRY, [...first, keys(1, 'k', 'l')], [...plain, share(24), keys(2, 'k', 'l')]],
    ['with fewer pre-shared keys', RETRY, [...first, keys(1, 'k', 'l')], [...plain, share(24), keys(2, 'l')]],
    ['without pre-shared keys', RETRY, [...first, keys(1, 'k')], [...plain, share(24)]],
    ['with a new encrypted inner ClientHello', RETRY, [...first, echOf(10)], [...plain, share(24), echOf(12)]],
  ])(
    '`mayFollow` accepts a second ClientHello with changes that a HelloRetryRequest permits: one %s',
    (_, retry, before, after) => {
      expect(mayFollow(bodyOf({ extensions: before }), retry, bodyOf({ extensions: after }))).toBe(true);
    },
  );

  it.each<[string, Buffer, readonly Buffer[], readonly Buffer[]]>([
    ['another name', RETRY, first, [sniOf('b.test'), ...plain.slice(1), share(24)]],
    ['a name in capitals', RETRY, first, [sniOf('A.test'), ...plain.slice(1), share(24)]],
    ['no name', RETRY, first, [...plain.slice(1), share(24)]],
    ['an additional name', RETRY, first.slice(1), [...plain, share(24)]],
    ['another protocol', RETRY, first, [sniOf('a.test'), alpnOf('h3'), versionsOf(0x0304), share(24)]],
    ['another version', RETRY, first, [sniOf('a.test'), alpnOf('h2'), versionsOf(0x0303), share(24)]],
    ['another order', RETRY, first, [alpnOf('h2'), sniOf('a.test'), versionsOf(0x0304), share(24)]],
    ['one more extension', RETRY, first, [...plain, share(24), extension(0x1234)]],
    ['one extension less', RETRY, first, [sniOf('a.test'), versionsOf(0x0304), share(24)]],
    ['early data', RETRY, [...plain, extension(42), share(29)], [...plain, extension(42), share(24)]],
    ['additional early data', RETRY, first, [...plain, extension(42), share(24)]],
    ['a cookie without a request', RETRY, first, [...plain, share(24), cookie('c')]],
    ['another cookie', retryOf(cookie('c')), first, [...first, cookie('d')]],
    ['no cookie', retryOf(cookie('c')), first, first],
    ['a key share without a request', retryOf(cookie('c')), first, [...plain, share(24), cookie('c')]],
    ['no key share', RETRY, first, plain],
    ['an additional key share', RETRY, plain, [...plain, share(24)]],
    ['additional pre-shared keys', RETRY, first, [...plain, share(24), keys(2, 'k')]],
    ['another pre-shared key', RETRY, [...first, keys(1, 'k')], [...plain, share(24), keys(2, 'm')]],
    [
      'pre-shared keys in another order',
      RETRY,
      [...first, keys(1, 'k', 'l')],
      [...plain, share(24), keys(2, 'l', 'k')],
    ],
    ['an additional inner ClientHello', RETRY, first, [...plain, share(24), echOf()]],
    ['no encrypted inner ClientHello', RETRY, [...first, echOf()], [...plain, share(24)]],
    ['an ECH extension of another type', RETRY, [...first, echOf()], [...plain, share(24), extension(0xfe0d, u8(1))]],
    ['a repeated extension', RETRY, first, [...plain, share(24), sniOf('b.test')]],
  ])(
    '`mayFollow` rejects a second ClientHello with changes that a HelloRetryRequest does not permit: one with %s',
    (_, retry, before, after) => {
      expect(mayFollow(bodyOf({ extensions: before }), retry, bodyOf({ extensions: after }))).toBe(false);
    },
  );

  it.each<[string, HelloParts]>([
    ['version', { version: 0x0302 }],
    ['session id', { sessionId: Buffer.alloc(0) }],
    ['list of cipher suites', { cipherSuites: u16(0x1302) }],
    ['list of compressions', { compressions: Buffer.from([1, 0]) }],
  ])(
    '`mayFollow` rejects after a HelloRetryRequest a second ClientHello whose fixed field (%s) differs from the first',
    (_, parts) => {
      const after = bodyOf({ extensions: [...plain, share(24)], ...parts });
      expect(mayFollow(bodyOf({ extensions: first }), RETRY, after)).toBe(false);
    },
  );
});

describe('AnswerReader', () => {
  const retry = record(message(2, RETRY), 22, 0x0303);
  const change = record(u8(1), 20, 0x0303);
  const warning = record(Buffer.from([1, 112]), 21, 0x0303);
  const answers = (bytes: Uint8Array, size: number): string[] => {
    const reader = new AnswerReader();
    const kinds: string[] = [];
    for (const chunk of split(bytes, size)) {
      reader.push(chunk);
      for (let next = reader.next(); next !== null; next = reader.next()) {
        kinds.push(next.kind);
        if (next.kind === 'not_tls') return kinds;
      }
    }
    return kinds;
  };

  it.each<[string, Buffer, readonly string[]]>([
    ['a ServerHello', serverHello(), ['hello']],
    ['a ServerHello after a warning alert', Buffer.concat([warning, serverHello()]), ['hello']],
    ['a HelloRetryRequest', retry, ['retry']],
    ['a HelloRetryRequest in small records', records(message(2, RETRY), 3), ['retry']],
    ['a HelloRetryRequest and a ServerHello', Buffer.concat([retry, change, serverHello()]), ['retry', 'hello']],
    [
      'two HelloRetryRequests in one record',
      record(Buffer.concat([message(2, RETRY), message(2, RETRY)])),
      ['retry', 'retry'],
    ],
    ['a fatal alert', record(Buffer.from([2, 40]), 21), []],
    ['other text', Buffer.from('HTTP/1.1 400 Bad Request\r\n'), ['not_tls']],
    ['a ClientHello', record(helloMessage({})), ['not_tls']],
    ['application data', record(Buffer.alloc(30), 23), ['not_tls']],
    [
      'another record inside a HelloRetryRequest',
      Buffer.concat([retry.subarray(0, 3), u16(4), retry.subarray(5, 9), change]),
      ['not_tls'],
    ],
  ])(
    '`AnswerReader` returns the kind of each message of a TLS server in the input (%s), in one chunk or in small chunks',
    (_, bytes, kinds) => {
      for (const size of [1, 2, 7, bytes.length]) expect(answers(bytes, size)).toEqual(kinds);
    },
  );
});
