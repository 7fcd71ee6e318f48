import type { ClientHello } from '#contracts/service-plane/tls-facts.js';
import { Cursor, readExtensions } from '#service-plane/tls/tls-cursor.js';
import { EXTENSION, isGrease, TLS13 } from '#service-plane/tls/tls-numbers.js';
import { readServerName } from './server-name.js';

const RANDOM_BYTES = 32;
const SESSION_ID_BYTES = 32;
const NO_COMPRESSION = 0;
const ECH = { outer: 0, inner: 1 } as const;

/**
 * Reads the body of a ClientHello (RFC 8446, 4.1.2; RFC 5246, 7.4.1.2). Returns null if the body is
 * malformed.
 */
export function readClientHello(body: Uint8Array): ClientHello | null {
  const hello = new Cursor(body);
  if (hello.number(2) >>> 8 !== 3) return null;
  hello.skip(RANDOM_BYTES);
  const sessionId = hello.vector(1);
  const cipherSuites = hello.vector(2);
  const compressions = hello.vector(1);
  if (sessionId.left > SESSION_ID_BYTES || !compressions.rest().includes(NO_COMPRESSION)) return null;
  if (cipherSuites.left === 0 || cipherSuites.left % 2 !== 0) return null;
  const extensions = readExtensions(hello);
  if (extensions === null || !isPreSharedKeyLast(extensions)) return null;
  const sni = optional(extensions.get(EXTENSION.serverName), null, readServerName);
  const alpn = optional(extensions.get(EXTENSION.alpn), [], readProtocols);
  const ech = optional(extensions.get(EXTENSION.encryptedClientHello), false, readEch);
  const offersTls13 = optional(extensions.get(EXTENSION.supportedVersions), false, readVersions);
  if (sni === FAULT || alpn === FAULT || ech === FAULT || offersTls13 === FAULT) return null;
  return { kind: 'hello', sni, ech, alpn, offersTls13 };
}

const FAULT = Symbol('malformed');

function optional<T>(
  extension: Cursor | undefined,
  absent: T,
  read: (extension: Cursor) => T | null,
): T | typeof FAULT {
  return extension === undefined ? absent : (read(extension) ?? FAULT);
}

/** RFC 8446, 4.2.11: the pre_shared_key extension must be the last extension of a ClientHello. */
function isPreSharedKeyLast(extensions: ReadonlyMap<number, Cursor>): boolean {
  return !extensions.has(EXTENSION.preSharedKey) || [...extensions.keys()].at(-1) === EXTENSION.preSharedKey;
}

/**
 * Returns the protocol names of the ALPN extension (RFC 7301, 3.1), without GREASE values; null if the
 * extension is malformed. Each byte of a name becomes one character.
 */
function readProtocols(extension: Cursor): readonly string[] | null {
  const list = extension.vector(2);
  if (list.left === 0 || !extension.isSpent) return null;
  const protocols: string[] = [];
  while (list.left > 0) {
    const protocol = list.vector(1).rest();
    if (protocol.length === 0) return null;
    const [first = 0, second = 0] = protocol;
    if (protocol.length !== 2 || !isGrease((first << 8) | second)) protocols.push(String.fromCharCode(...protocol));
  }
  return list.isSpent ? protocols : null;
}

/** Returns true if the supported_versions extension offers TLS 1.3; null if the extension is malformed. */
function readVersions(extension: Cursor): boolean | null {
  const list = extension.vector(1);
  if (list.left === 0 || list.left % 2 !== 0 || !extension.isSpent) return null;
  let offersTls13 = false;
  while (list.left > 0) if (list.number(2) === TLS13) offersTls13 = true;
  return offersTls13;
}

/**
 * Returns true if the extension shows that the real server name is encrypted (ECH, RFC 9849, 5). Returns
 * false for the inner type: such a ClientHello, sent in plain text, contains the real name. Returns null if
 * the extension is malformed.
 */
function readEch(extension: Cursor): boolean | null {
  const type = extension.number(1);
  if (type === ECH.outer && extension.left > 0) return true;
  return type === ECH.inner && extension.isSpent ? false : null;
}
