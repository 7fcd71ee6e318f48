import { Cursor, readExtensions } from './tls-cursor.js';
import { EXTENSION, TLS13 } from './tls-numbers.js';

const RANDOM_BYTES = 32;
const SESSION_ID_BYTES = 32;

/**
 * Returns the TLS version of a ServerHello or HelloRetryRequest (RFC 8446, 4.1.3); null if malformed. The
 * caller needs the version because certificates are encrypted in TLS 1.3. A HelloRetryRequest has the format
 * of a ServerHello, and exists only in TLS 1.3.
 */
export function readServerHello(body: Uint8Array): 'tls13' | 'older' | null {
  const hello = new Cursor(body);
  const version = hello.number(2);
  hello.skip(RANDOM_BYTES);
  const sessionId = hello.vector(1);
  hello.skip(2 + 1);
  if (version < 0x0300 || version > 0x0303 || sessionId.left > SESSION_ID_BYTES) return null;
  const extensions = readExtensions(hello);
  if (extensions === null) return null;
  const selected = extensions.get(EXTENSION.supportedVersions);
  if (selected === undefined) return isRetry(body) ? null : 'older';
  // RFC 8446, 4.2.1: the supported_versions extension must not select a version before TLS 1.3.
  return version === 0x0303 && selected.number(2) === TLS13 && selected.isSpent ? 'tls13' : null;
}

const RETRY_RANDOM = [
  0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
  0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/**
 * Returns true if a message with the ServerHello format is a HelloRetryRequest: its random field has a fixed
 * value (RFC 8446, 4.1.3).
 */
export function isRetry(body: Uint8Array): boolean {
  return RETRY_RANDOM.every((byte, index) => body[2 + index] === byte);
}
