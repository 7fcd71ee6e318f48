import { createECDH } from 'node:crypto';
import { ADDRESSES } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import {
  alpnOf,
  extension,
  helloMessage,
  record,
  records,
  sniOf,
  u8,
  u16,
  vector16,
  versionsOf,
} from '#test/service-plane/tls/hello-bytes.js';
import type { NodeRig } from './rig.js';

const X25519 = 29;
const P384 = 24;
/**
 * Options for `openssl s_server`: the server sends HelloRetryRequest to a client that has no key share for
 * P-384.
 */
export const RETRYING = ['-groups', 'P-384'] as const;

const keyShareOf = (group: number, key: Uint8Array): Buffer =>
  extension(51, vector16(Buffer.concat([u16(group), vector16(key)])));
const FIRST_SHARE = keyShareOf(X25519, Buffer.alloc(32, 9));
const SECOND_SHARE = keyShareOf(P384, createECDH('secp384r1').generateKeys());
const GROUPS = extension(10, vector16(u16(X25519), u16(P384)));
const SIGNATURES = extension(13, vector16(...[0x0804, 0x0403, 0x0503, 0x0401].map(u16)));
const VERSIONS = versionsOf(0x0304, 0x0303);

type Parts = {
  readonly sni?: string | null;
  readonly share?: Buffer;
  readonly more?: readonly Buffer[];
  readonly versions?: Buffer;
  readonly sessionId?: Buffer;
};

/**
 * Returns a ClientHello that OpenSSL accepts. By default it has a key share for X25519 only, so a server with
 * the options `RETRYING` sends HelloRetryRequest.
 */
function retriedHello({ sni = SERVER_NAME, share = FIRST_SHARE, more = [], versions, sessionId }: Parts): Buffer {
  const name = sni === null ? [] : [sniOf(sni)];
  const extensions = [...name, GROUPS, SIGNATURES, versions ?? VERSIONS, ...more, share];
  return helloMessage({ extensions, cipherSuites: u16(0x1301), ...(sessionId === undefined ? {} : { sessionId }) });
}

const CHANGE_OF_CIPHER = record(u8(1), 20, 0x0303);
const alert = (level: number, description: number): Buffer => record(Buffer.from([level, description]), 21, 0x0303);

export type Sent = {
  /** The bytes that the client sends first. */
  readonly first: Buffer;
  /** The bytes that the client sends after the first, the second, … HelloRetryRequest. */
  readonly next: readonly Buffer[];
  /** Maximum number of bytes in one TCP segment of the client; no maximum if undefined. */
  readonly size?: number;
};

export const FIRST = record(retriedHello({}));
const second = (parts: Parts): Buffer => retriedHello({ share: SECOND_SHARE, ...parts });
const OTHER = second({ sni: 'denied.test' });

/**
 * Byte sequences whose second ClientHello differs from the first in a way that RFC 8446 forbids. A server may
 * accept them.
 */
export const CHANGED: readonly (readonly [string, Sent])[] = [
  ['another name', { first: FIRST, next: [record(OTHER)] }],
  ['another name, one byte in each segment', { first: FIRST, next: [record(OTHER)], size: 1 }],
  ['another name, seven bytes in each record', { first: FIRST, next: [records(OTHER, 7)] }],
  [
    'another name behind a change of cipher',
    { first: FIRST, next: [Buffer.concat([CHANGE_OF_CIPHER, record(OTHER)])] },
  ],
  ['another name behind a warning', { first: FIRST, next: [Buffer.concat([alert(1, 90), record(OTHER)])] }],
  ['another name behind a fatal user_canceled', { first: FIRST, next: [Buffer.concat([alert(2, 90), record(OTHER)])] }],
  ['another name in the first segment', { first: Buffer.concat([FIRST, record(OTHER)]), next: [] }],
  [
    'another name in the first segment, behind a change of cipher',
    { first: Buffer.concat([FIRST, CHANGE_OF_CIPHER, record(OTHER)]), next: [] },
  ],
  [
    'another name behind early data',
    {
      first: Buffer.concat([record(retriedHello({ more: [extension(42)] })), record(Buffer.alloc(99, 7), 23, 0x0303)]),
      next: [record(OTHER)],
    },
  ],
  [
    'another name with padding',
    { first: FIRST, next: [record(second({ sni: 'denied.test', more: [extension(21, Buffer.alloc(300))] }))] },
  ],
  ['no name', { first: FIRST, next: [record(second({ sni: null }))] }],
  ['another ALPN protocol', { first: FIRST, next: [record(second({ more: [alpnOf('h2')] }))] }],
  ['another session identifier', { first: FIRST, next: [record(second({ sessionId: Buffer.alloc(32, 1) }))] }],
  ['an older TLS version', { first: FIRST, next: [record(second({ versions: versionsOf(0x0303) }))] }],
];

export const SAME: readonly (readonly [string, Sent])[] = [
  ['in one segment', { first: FIRST, next: [record(second({}))] }],
  ['one byte in each segment', { first: FIRST, next: [record(second({}))], size: 1 }],
  ['seven bytes in each record', { first: FIRST, next: [records(second({}), 7)] }],
  ['behind a change of cipher', { first: FIRST, next: [Buffer.concat([CHANGE_OF_CIPHER, record(second({}))])] }],
  ['in the first segment', { first: Buffer.concat([FIRST, CHANGE_OF_CIPHER, record(second({}))]), next: [] }],
  ['with padding', { first: FIRST, next: [record(second({ more: [extension(21, Buffer.alloc(300))] }))] }],
];

/**
 * Three ClientHellos without a cookie; the third has another server name. A stateless server answers with
 * HelloRetryRequest until a ClientHello contains the cookie of the server.
 */
export const WITHOUT_COOKIE: Sent = { first: FIRST, next: [record(second({})), record(OTHER)] };

/**
 * A python3 program that sends the bytes of a `Sent`. It prints the last answer of the server (`hello`,
 * `retry` or `alert N`), or how the connection failed (`reset`, `end` or `silent`).
 */
const SENDING = `
import json, socket, sys, time
RETRY = bytes.fromhex('cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c')
told = json.load(sys.stdin)
s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.settimeout(5); s.setsockopt(6, 1, 1)
def send(text):
    data, size = bytes.fromhex(text), told['size'] or 1 << 20
    for at in range(0, len(data), size): s.sendall(data[at:at + size])
def take(count):
    data = b''
    while len(data) < count:
        part = s.recv(count - len(data))
        if not part: raise EOFError
        data += part
    return data
def answer():
    while True:
        head = take(5); body = take(head[3] << 8 | head[4])
        if head[0] == 21: return 'alert %d' % body[1]
        if head[0] == 22: return 'retry' if body[6:38] == RETRY else 'hello'
def run():
    send(told['first'])
    heard = answer()
    for more in told['next']:
        if heard != 'retry': return heard
        send(more); heard = answer()
    return answer() if heard == 'retry' else heard
try: print(run())
except ConnectionError: print('reset')
except EOFError: print('end')
except TimeoutError: print('silent')
`;

export async function send(
  rig: Pick<NodeRig, 'topology'>,
  port: number,
  { first, next, size = 0 }: Sent,
): Promise<string> {
  const child = rig.topology.client.start('/usr/bin/python3', ['-c', SENDING, ADDRESSES.server, String(port)]);
  let said = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  child.stdin?.end(
    JSON.stringify({ first: first.toString('hex'), next: next.map((one) => one.toString('hex')), size }),
  );
  await new Promise((resolve) => child.once('close', resolve));
  return said.trim();
}
