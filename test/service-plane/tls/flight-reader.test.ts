import { constants } from 'node:crypto';
import type { ConnectionOptions, TlsOptions } from 'node:tls';
import { afterAll, describe, expect, it } from 'vitest';
import { type FlightFacts, type FlightFault, FlightReader } from '#service-plane/tls/flight-reader.js';
import { AUTHORITY, Issuer } from '../certificate/issued.js';
import { read, split } from './chunks.js';
import { recordFlight } from './flight.js';
import { extension, message, record, records, u8, u16, vector8, vector16, vector24 } from './hello-bytes.js';

const issuer = new Issuer();
afterAll(() => issuer.close());
const root = issuer.issue({ subject: '/CN=root', extensions: AUTHORITY });
const ec = issuer.issue({ subject: '/CN=ec', by: root });
const rsa = issuer.issue({ subject: '/CN=rsa', by: root, key: ['rsa:2048'] });

const factsOf = (bytes: Uint8Array): FlightFacts | null => {
  const facts = read(new FlightReader(), [bytes]);
  expect(read(new FlightReader(), split(bytes, 1))).toEqual(facts);
  expect(read(new FlightReader(), split(bytes, 1_399))).toEqual(facts);
  return facts;
};
const unreadable = (fault: FlightFault): FlightFacts => ({ kind: 'unreadable', fault });
const byTls13: FlightFacts = { kind: 'hidden', by: 'tls13' };
const byResumption: FlightFacts = { kind: 'hidden', by: 'resumption' };
const chainOf = (...ders: readonly Uint8Array[]): FlightFacts => ({
  kind: 'chain',
  ders: ders.map((der) => new Uint8Array(der)),
});

describe('FlightReader and the first flight (TLS handshake messages) of a real server', () => {
  const serving: TlsOptions = { key: ec.key, cert: ec.pem + root.pem };
  const tls12: ConnectionOptions = { maxVersion: 'TLSv1.2' };
  const weak: ConnectionOptions = { ciphers: 'ALL:@SECLEVEL=0', minVersion: 'TLSv1', maxVersion: 'TLSv1' };
  type Row = readonly [says: string, TlsOptions, ConnectionOptions, FlightFacts];
  const rows: readonly Row[] = [
    ['with TLS 1.2 and ECDSA: the certificate chain', serving, tls12, chainOf(ec.der, root.der)],
    ['with TLS 1.2 and RSA: the certificate chain', { key: rsa.key, cert: rsa.pem }, tls12, chainOf(rsa.der)],
    [
      'with TLS 1.2 and a certificate request: the certificate chain',
      { ...serving, requestCert: true, rejectUnauthorized: false },
      tls12,
      chainOf(ec.der, root.der),
    ],
    ['with TLS 1.0: the certificate chain', { ...serving, ...weak } as TlsOptions, weak, chainOf(ec.der, root.der)],
    ['with TLS 1.3: hidden', serving, {}, byTls13],
    [
      'with TLS 1.3 and a HelloRetryRequest: hidden',
      { ...serving, ecdhCurve: 'P-384' },
      { ecdhCurve: 'P-256:P-384' },
      byTls13,
    ],
    ['without a common version: alert', { ...serving, minVersion: 'TLSv1.3' }, tls12, unreadable('alert')],
    [
      'with TLS 1.2 without authentication: anonymous',
      { ciphers: 'AECDH-AES128-SHA:@SECLEVEL=0' },
      { ...tls12, ciphers: 'AECDH-AES128-SHA:@SECLEVEL=0' },
      unreadable('anonymous'),
    ],
    [
      'with TLS 1.2 and a pre-shared key: anonymous',
      { ciphers: 'PSK-AES128-CBC-SHA256', pskCallback: () => Buffer.alloc(16), pskIdentityHint: 'hint' },
      {
        ...tls12,
        ciphers: 'PSK-AES128-CBC-SHA256',
        pskCallback: () => ({ psk: Buffer.alloc(16), identity: 'client' }),
        checkServerIdentity: () => undefined,
      },
      unreadable('anonymous'),
    ],
  ];
  it.each(rows)(
    '`FlightReader` returns the expected facts about the certificate from the handshake messages of a real TLS server: %s',
    async (_, options, asking, facts) => {
      const { flight } = await recordFlight(options, asking);
      expect(factsOf(flight)).toEqual(facts);
    },
  );

  it.each([
    ['a ticket', 0],
    ['a session id', constants.SSL_OP_NO_TICKET],
  ])(
    '`FlightReader` returns `hidden` (no visible certificate) for the handshake messages of a server that resumes a TLS session by %s',
    async (_, secureOptions) => {
      const options: TlsOptions = { ...serving, secureOptions, ticketKeys: Buffer.alloc(48, 7) };
      const { flight, session } = await recordFlight(options, tls12);
      expect(factsOf(flight)).toEqual(chainOf(ec.der, root.der));
      if (session === undefined) throw new Error('no session was given');
      const resumed = await recordFlight(options, { ...tls12, session });
      expect(factsOf(resumed.flight)).toEqual(byResumption);
    },
  );

  it('`FlightReader` returns the certificate chain for every split of a server flight (TLS messages) in two, and stores all bytes of the flight', async () => {
    const { flight } = await recordFlight(serving, tls12);
    for (let at = 0; at <= flight.length; at++) {
      const reader = new FlightReader();
      expect(read(reader, [flight.subarray(0, at), flight.subarray(at)])).toEqual(chainOf(ec.der, root.der));
      expect(Buffer.compare(reader.bytes, flight)).toBe(0);
    }
  });
});

type Hello = {
  version?: number;
  random?: Uint8Array;
  sessionId?: Uint8Array;
  extensions?: readonly Uint8Array[] | null;
};
const helloBody = ({ version = 0x0303, random, sessionId, extensions = [] }: Hello = {}): Buffer =>
  Buffer.concat([
    u16(version),
    random ?? Buffer.alloc(32, 3),
    vector8(sessionId ?? Buffer.alloc(32, 4)),
    u16(0xc02f),
    u8(0),
    ...(extensions === null ? [] : [vector16(...extensions)]),
  ]);
const serverHello = (hello?: Hello): Buffer => message(2, helloBody(hello));
const selected = (version: number): Buffer => extension(43, u16(version));
const retry = Buffer.from('cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c', 'hex');
const certificate = (...ders: readonly Uint8Array[]): Buffer =>
  message(11, vector24(...ders.map((der) => vector24(der))));
const flight = (...messages: readonly Uint8Array[]): Buffer => record(Buffer.concat(messages));

describe('FlightReader and a flight that the test has built', () => {
  const der = Buffer.alloc(40, 0x30);
  const shown = chainOf(der);
  const big = Buffer.alloc(100_000, 0x31);
  const rows: readonly (readonly [string, Uint8Array, FlightFacts | null])[] = [
    ['in one record', flight(serverHello(), certificate(der), message(14, u8(0))), shown],
    ['in a record for each message', Buffer.concat([flight(serverHello()), flight(certificate(der))]), shown],
    ['in one byte a record', records(Buffer.concat([serverHello(), certificate(der)]), 1), shown],
    ['with a big certificate', records(Buffer.concat([serverHello(), certificate(big)]), 16_640), chainOf(big)],
    ['without extensions', flight(serverHello({ extensions: null }), certificate(der)), shown],
    ['with supplemental data', flight(serverHello(), message(23, u8(0)), certificate(der)), shown],
    [
      'with a warning that the name is not known',
      Buffer.concat([record(Buffer.from([1, 112]), 21), flight(serverHello(), certificate(der))]),
      shown,
    ],
    ['of which only the ServerHello has arrived', flight(serverHello()), null],
    ['of TLS 1.3 with a ServerHello only', flight(serverHello({ extensions: [selected(0x0304)] })), byTls13],
    ['with a HelloRetryRequest', flight(serverHello({ random: retry, extensions: [selected(0x0304)] })), byTls13],
    ['with a HelloRetryRequest before TLS 1.3', flight(serverHello({ random: retry })), unreadable('malformed')],
    [
      'that selects TLS 1.2 by the extension',
      flight(serverHello({ extensions: [selected(0x0303)] })),
      unreadable('malformed'),
    ],
    [
      'that selects a draft of TLS 1.3',
      flight(serverHello({ extensions: [selected(0x7f1c)] })),
      unreadable('malformed'),
    ],
    [
      'that selects TLS 1.3 in a ServerHello of TLS 1.0',
      flight(serverHello({ version: 0x0301, extensions: [selected(0x0304)] })),
      unreadable('malformed'),
    ],
    ['with TLS 1.3 in the old version field', flight(serverHello({ version: 0x0304 })), unreadable('malformed')],
    ['of version 2', flight(serverHello({ version: 0x0200 })), unreadable('malformed')],
    ['with a session id of 33 bytes', flight(serverHello({ sessionId: Buffer.alloc(33) })), unreadable('malformed')],
    [
      'with a repeated extension',
      flight(serverHello({ extensions: [extension(5), extension(5)] })),
      unreadable('malformed'),
    ],
    [
      'with a trailing byte in its ServerHello',
      flight(message(2, Buffer.concat([helloBody(), u8(0)]))),
      unreadable('malformed'),
    ],
    ['with a new ticket before a certificate', flight(serverHello(), message(4, Buffer.alloc(6))), byResumption],
    ['with a change of cipher', Buffer.concat([flight(serverHello()), record(u8(1), 20)]), byResumption],
    ['with a change of cipher first', record(u8(1), 20), unreadable('malformed')],
    [
      'with a change of cipher of two bytes',
      Buffer.concat([flight(serverHello()), record(u16(0x0101), 20)]),
      unreadable('malformed'),
    ],
    [
      'with a change of cipher inside a message',
      Buffer.concat([flight(serverHello(), certificate(der).subarray(0, 9)), record(u8(1), 20)]),
      unreadable('malformed'),
    ],
    ['with two ServerHellos', flight(serverHello(), serverHello()), unreadable('malformed')],
    ['with an unencrypted Finished', flight(serverHello(), message(20, Buffer.alloc(12))), unreadable('malformed')],
    ['with a certificate first', flight(certificate(der)), unreadable('malformed')],
    ['with an empty chain', flight(serverHello(), certificate()), unreadable('anonymous')],
    ['with an empty certificate', flight(serverHello(), certificate(der, Buffer.alloc(0))), unreadable('malformed')],
    [
      'with a byte after its chain',
      flight(serverHello(), message(11, Buffer.concat([vector24(), u8(0)]))),
      unreadable('malformed'),
    ],
    [
      'with a chain that is shorter than its length',
      flight(serverHello(), message(11, vector24(u8(0)))),
      unreadable('malformed'),
    ],
    [
      'with a key exchange in place of the certificate',
      flight(serverHello(), message(12, Buffer.alloc(9))),
      unreadable('anonymous'),
    ],
    [
      'with a certificate request in place of the certificate',
      flight(serverHello(), message(13, Buffer.alloc(9))),
      unreadable('anonymous'),
    ],
    [
      'with a ServerHelloDone in place of the certificate',
      flight(serverHello(), message(14, Buffer.alloc(0))),
      unreadable('anonymous'),
    ],
    ['that is a fatal alert', record(Buffer.from([2, 40]), 21), unreadable('alert')],
    ['that is a close_notify alert', record(Buffer.from([1, 0]), 21), unreadable('alert')],
    ['with an incomplete alert', record(u8(1), 21), unreadable('malformed')],
    ['with application data', Buffer.concat([flight(serverHello()), record(u8(1), 23)]), unreadable('malformed')],
    ['with an empty record', Buffer.concat([flight(serverHello()), record(Buffer.alloc(0))]), unreadable('malformed')],
    ['with a record that is too long', record(Buffer.alloc(16_641, 2)), unreadable('malformed')],
    ['that is HTTP', Buffer.from('HTTP/1.1 400 Bad Request\r\n'), unreadable('not_tls')],
    [
      'of more than 256 KiB',
      records(Buffer.concat([serverHello(), message(11, Buffer.alloc(262_100))]), 16_384),
      unreadable('too_long'),
    ],
    ['that announces more than 256 KiB', flight(serverHello(), Buffer.from([11, 4, 0, 1])), unreadable('too_long')],
  ];
  it.each(rows)(
    '`FlightReader` returns the certificates, `hidden` with a reason, or a fault for the handshake messages of a TLS server: %s',
    (_, bytes, facts) => {
      expect(factsOf(bytes)).toEqual(facts);
    },
  );
});
