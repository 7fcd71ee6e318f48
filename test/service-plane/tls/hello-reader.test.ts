import { describe, expect, it } from 'vitest';
import type { HelloFacts, HelloFault } from '#contracts/service-plane/tls-facts.js';
import { HelloReader } from '#service-plane/tls/hello/hello-reader.js';
import { ProgressClock } from '#test/progress-clock.js';
import { CHROMIUM_HELLO } from './chromium-hello.js';
import { read, split } from './chunks.js';
import {
  alpnOf,
  echOf,
  extension,
  hello,
  helloMessage,
  hostName,
  message,
  record,
  records,
  sniOf,
  u8,
  u16,
  vector8,
  vector16,
  versionsOf,
} from './hello-bytes.js';

const factsOf = (bytes: Uint8Array): HelloFacts | null => read(new HelloReader(), [bytes]);
const ofExtensions = (...extensions: readonly Uint8Array[]): HelloFacts | null => factsOf(hello(...extensions));
const unreadable = (fault: HelloFault): HelloFacts => ({ kind: 'unreadable', fault });
const plain: HelloFacts = { kind: 'hello', sni: null, ech: false, alpn: [], offersTls13: false };
const named: HelloFacts = { ...plain, sni: 'api.example.com' };
const typical = [sniOf('api.example.com'), alpnOf('h2', 'http/1.1'), versionsOf(0x7a7a, 0x0304, 0x0303)];
const typicalFacts: HelloFacts = { ...named, alpn: ['h2', 'http/1.1'], offersTls13: true };
/** Returns a ClientHello message of `bytes` bytes, filled up with the padding extension (RFC 7685). */
const sized = (bytes: number): Buffer => {
  const short = helloMessage({ extensions: [...typical, extension(21)] }).length;
  return helloMessage({ extensions: [...typical, extension(21, Buffer.alloc(bytes - short))] });
};

describe('HelloReader and a ClientHello in several segments or records', () => {
  it.each([hello(...typical), records(sized(300), 7), records(sized(1_600), 1_000)])(
    '`HelloReader` reads the ClientHello for every split of its bytes into two segments (input %#)',
    (bytes) => {
      for (let at = 0; at <= bytes.length; at++) {
        const reader = new HelloReader();
        expect(read(reader, [bytes.subarray(0, at), bytes.subarray(at)])).toEqual(typicalFacts);
        expect(Buffer.compare(reader.bytes, bytes)).toBe(0);
      }
    },
  );

  it.each([
    ['segments of one byte', split(record(sized(1_600)), 1)],
    ['records of one byte', [records(sized(1_600), 1)]],
    ['records and segments of one byte', split(records(sized(300), 1), 1)],
    ['16,384 bytes in one record', [record(sized(16_384))]],
    ['65,516 bytes in records of full size', [records(sized(65_516), 16_384)]],
    ['65,516 bytes in segments of one byte', split(records(sized(65_516), 16_384), 1)],
    ['records of each version', [record(helloMessage({ extensions: typical }), 22, 0x0300)]],
  ])('`HelloReader` reads a ClientHello that arrives in %s', (_, chunks) => {
    expect(read(new HelloReader(), chunks)).toEqual(typicalFacts);
  });

  it('`HelloReader` returns null until the last byte of the ClientHello has arrived', () => {
    const bytes = records(sized(300), 13);
    for (let length = 0; length < bytes.length; length++) expect(factsOf(bytes.subarray(0, length))).toBeNull();
  });

  it('`HelloReader` reads a ClientHello of 64 KiB in segments of one byte in less than one second', () => {
    const chunks = split(records(sized(65_516), 16_384), 1);
    const clock = new ProgressClock();
    read(new HelloReader(), chunks);
    expect(clock.ms()).toBeLessThan(1_000);
  });

  it('the field `bytes` of `HelloReader` also contains the bytes that follow the ClientHello', () => {
    const early = record(Buffer.from('early'), 23);
    const reader = new HelloReader();
    const bytes = Buffer.concat([hello(...typical), early]);
    expect(reader.push(bytes)).toEqual(typicalFacts);
    expect(reader.push(early)).toEqual(typicalFacts);
    expect(Buffer.compare(reader.bytes, Buffer.concat([bytes, early]))).toBe(0);
  });
});

describe('HelloReader and bytes that are no valid ClientHello', () => {
  const whole = helloMessage({ extensions: typical });
  const sslv2 = Buffer.concat([u16(0x802e), u8(1), u16(0x0301), u16(0x15), u16(0), u16(0x10), Buffer.alloc(0x25)]);
  const rows: readonly (readonly [string, Uint8Array, HelloFault])[] = [
    ['HTTP', Buffer.from('GET / HTTP/1.1\r\n\r\n'), 'not_tls'],
    ['one letter', Buffer.from('G'), 'not_tls'],
    ['SSH', Buffer.from('SSH-2.0-OpenSSH_9.2\r\n'), 'not_tls'],
    ['STARTTLS before a ClientHello', Buffer.concat([Buffer.from('STARTTLS\r\n'), record(whole)]), 'not_tls'],
    ['SSLv2', sslv2, 'not_tls'],
    ['a record of version 2', record(whole, 22, 0x0200), 'not_tls'],
    ['two bytes of version 4', Buffer.from([22, 4]), 'not_tls'],
    ['an alert first', Buffer.concat([record(Buffer.from([1, 112]), 21), record(whole)]), 'malformed'],
    ['a change of cipher first', Buffer.concat([record(u8(1), 20), record(whole)]), 'malformed'],
    ['application data first', Buffer.concat([record(u8(1), 23), record(whole)]), 'malformed'],
    ['an empty record first', Buffer.concat([record(Buffer.alloc(0)), record(whole)]), 'malformed'],
    [
      'an empty record inside the ClientHello',
      Buffer.concat([record(whole.subarray(0, 9)), record(Buffer.alloc(0)), record(whole.subarray(9))]),
      'malformed',
    ],
    [
      'a ChangeCipherSpec inside the ClientHello',
      Buffer.concat([record(whole.subarray(0, 9)), record(u8(1), 20), record(whole.subarray(9))]),
      'malformed',
    ],
    ['text inside the ClientHello', Buffer.concat([record(whole.subarray(0, 9)), Buffer.from('GET /')]), 'malformed'],
    ['a record that is too long', record(sized(16_385)), 'malformed'],
    ['a ServerHello', record(message(2, Buffer.alloc(50))), 'malformed'],
    ['a second message in the record', record(Buffer.concat([whole, message(1, u8(0))])), 'malformed'],
    ['a trailing byte in the record', record(Buffer.concat([whole, u8(1)])), 'malformed'],
    ['more than 64 KiB', records(sized(65_517), 16_384), 'too_long'],
    ['more than 64 KiB with its headers', records(sized(20_000), 1), 'too_long'],
    ['an announcement of more than 64 KiB', record(Buffer.from([1, 1, 0, 1])), 'too_long'],
  ];
  it.each(rows)(
    '`HelloReader` rejects bytes that are no valid ClientHello (%s), in one segment and in segments of 1 and 3 bytes',
    (_, bytes, fault) => {
      expect(factsOf(bytes)).toEqual(unreadable(fault));
      expect(read(new HelloReader(), split(bytes, 1))).toEqual(unreadable(fault));
      expect(read(new HelloReader(), split(bytes, 3))).toEqual(unreadable(fault));
    },
  );
});

describe('HelloReader and the body of a ClientHello', () => {
  it('`HelloReader` accepts a ClientHello without extensions', () => {
    expect(factsOf(record(helloMessage({ extensions: null })))).toEqual(plain);
    expect(ofExtensions()).toEqual(plain);
  });

  const rows: readonly (readonly [string, Parameters<typeof helloMessage>[0]])[] = [
    ['of version 2', { version: 0x0203 }],
    ['with a session id of 33 bytes', { sessionId: Buffer.alloc(33) }],
    ['without cipher suites', { cipherSuites: Buffer.alloc(0) }],
    ['with an incomplete cipher suite', { cipherSuites: Buffer.alloc(3) }],
    ['without compressions', { compressions: Buffer.alloc(0) }],
    ['with compression only', { compressions: u8(1) }],
    ['with a byte after its extensions', { extensions: typical, tail: u8(0) }],
    ['with a byte in place of extensions', { extensions: null, tail: u8(0) }],
    ['with extensions shorter than their length', { extensions: null, tail: vector16(u16(21), u16(1)) }],
    ['with one byte of an extension', { extensions: [...typical, u8(0)] }],
    ['with three bytes of an extension', { extensions: [...typical, Buffer.from([0, 21, 0])] }],
    ['with a repeated extension', { extensions: [sniOf('a.test'), sniOf('a.test')] }],
    ['with a repeated unknown extension', { extensions: [extension(0x1234), extension(0x1234)] }],
    ['with a pre-shared key before another extension', { extensions: [extension(41, u8(0)), sniOf('a.test')] }],
  ];
  it.each(rows)('`HelloReader` rejects a malformed ClientHello (%s)', (_, parts) => {
    expect(factsOf(record(helloMessage(parts)))).toEqual(unreadable('malformed'));
  });

  it('`HelloReader` rejects a ClientHello body that is truncated at any byte', () => {
    const body = helloMessage({ extensions: typical }).subarray(4);
    for (let length = 0; length < body.length; length++) {
      const facts = factsOf(record(message(1, body.subarray(0, length))));
      const isWithoutExtensions = facts?.kind === 'hello' && length === 2 + 32 + 33 + 8 + 2;
      if (!isWithoutExtensions) expect(facts).toEqual(unreadable('malformed'));
    }
  });

  it('`HelloReader` ignores GREASE values in the lists of extensions, protocols and versions', () => {
    const grease = [extension(0x0a0a), ...typical, extension(0x1a1a, u8(0)), extension(0xfafa, Buffer.alloc(9))];
    expect(ofExtensions(...grease)).toEqual(typicalFacts);
    expect(ofExtensions(alpnOf('\x0a\x0a', 'h2', '\xfa\xfa', '\x0a\x1a'))).toEqual({
      ...plain,
      alpn: ['h2', '\x0a\x1a'],
    });
    expect(ofExtensions(versionsOf(0x0a0a))).toEqual(plain);
  });
});

describe('HelloReader and the server_name extension', () => {
  const label = 'a'.repeat(63);
  const longest = `${label}.${label}.${label}.${'b'.repeat(61)}`;
  const good: readonly (readonly [string, string])[] = [
    ['api.example.com', 'api.example.com'],
    ['API.Example.COM', 'api.example.com'],
    ['api.example.com.', 'api.example.com'],
    ['localhost', 'localhost'],
    ['_dmarc.a-b--c.xn--mnchen-3ya.de', '_dmarc.a-b--c.xn--mnchen-3ya.de'],
    ['1.2.3.a', '1.2.3.a'],
    ['1e100.net', '1e100.net'],
    [longest, longest],
    [`${longest}.`, longest],
  ];
  it.each(good)('`HelloReader` accepts the server name %s', (name, sni) => {
    expect(ofExtensions(sniOf(name))).toEqual({ ...plain, sni });
  });

  const bad: readonly (readonly [string, Uint8Array])[] = [
    ['without content', extension(0)],
    ['without names', extension(0, vector16())],
    ['that is empty', sniOf('')],
    ['that is a dot', sniOf('.')],
    ['with two dots at its end', sniOf('a.test..')],
    ['with an empty label', sniOf('a..test')],
    ['that begins with a dot', sniOf('.a.test')],
    ['with a NUL', sniOf('a.test\0.evil.test')],
    ['with a space', sniOf('a.test ')],
    ['with a wildcard', sniOf('*.test')],
    ['with a port', sniOf('a.test:443')],
    ['with a slash', sniOf('a.test/')],
    ['that is Latin 1', sniOf('m\xfcnchen.de')],
    ['that is UTF-8', sniOf(Buffer.from('münchen.de'))],
    ['that is an IPv4 address', sniOf('192.0.2.1')],
    ['that is a short IPv4 address', sniOf('127.1')],
    ['that is a hexadecimal IPv4 address', sniOf('192.0.0x2')],
    ['that is a number', sniOf('3221225985')],
    ['that is an IPv6 address', sniOf('2001:db8::1')],
    ['that is an IPv6 address in brackets', sniOf('[::1]')],
    ['with a label of 64 bytes', sniOf(`${label}a.test`)],
    ['of 254 bytes', sniOf(`${longest}b`)],
    ['with a second name', extension(0, vector16(hostName('a.test'), hostName('b.test')))],
    ['with a second name of another type', extension(0, vector16(hostName('a.test'), u8(1), vector16(u8(1))))],
    ['of another name type', extension(0, vector16(u8(1), vector16(Buffer.from('a.test'))))],
    ['with a byte after the list', extension(0, vector16(hostName('a.test')), u8(0))],
    ['that is longer than its list', extension(0, u16(9), hostName('a.test.long'))],
    ['that is longer than its extension', extension(0, vector16(u8(0), u16(99), Buffer.from('a.test')))],
  ];
  it.each(bad)('`HelloReader` rejects a malformed server name extension (a name %s)', (_, name) => {
    expect(ofExtensions(name)).toEqual(unreadable('malformed'));
  });
});

describe('HelloReader and the ECH, ALPN and supported_versions extensions', () => {
  const rows: readonly (readonly [string, Uint8Array, HelloFacts])[] = [
    ['an outer ECH', echOf(), { ...plain, ech: true }],
    ['an inner ECH', extension(0xfe0d, u8(1)), plain],
    ['an inner ECH with content', extension(0xfe0d, u8(1), u8(0)), unreadable('malformed')],
    ['an outer ECH without content', extension(0xfe0d, u8(0)), unreadable('malformed')],
    ['an empty ECH', extension(0xfe0d), unreadable('malformed')],
    ['an ECH of an unknown type', extension(0xfe0d, u8(2), u8(0)), unreadable('malformed')],
    ['only TLS 1.3', versionsOf(0x0304), { ...plain, offersTls13: true }],
    ['only a draft of TLS 1.3', versionsOf(0x7f1c), plain],
    ['no versions', versionsOf(), unreadable('malformed')],
    ['an incomplete version', extension(43, vector8(u8(3))), unreadable('malformed')],
    ['a byte after the versions', extension(43, vector8(u16(0x0304)), u8(0)), unreadable('malformed')],
    ['no protocols', extension(16, vector16()), unreadable('malformed')],
    ['an empty protocol', alpnOf('h2', ''), unreadable('malformed')],
    ['a protocol that is longer than its list', extension(16, vector16(u8(9), u8(1))), unreadable('malformed')],
    ['a byte after the protocols', extension(16, vector16(vector8(u8(1))), u8(0)), unreadable('malformed')],
  ];
  it.each(rows)('`HelloReader` reads a ClientHello with %s as RFC 8446 and RFC 9849 define it', (_, bytes, facts) => {
    expect(ofExtensions(bytes)).toEqual(facts);
  });

  it('`HelloReader` returns `ech: true` and the unencrypted server name for a ClientHello with ECH', () => {
    expect(ofExtensions(sniOf('public.example'), echOf())).toEqual({ ...plain, sni: 'public.example', ech: true });
  });

  it('`HelloReader` reads the ClientHello of Chromium, whose ECH extension is GREASE', () => {
    expect(factsOf(CHROMIUM_HELLO)).toEqual({ ...typicalFacts, sni: 'www.example.com', ech: true });
  });
});
