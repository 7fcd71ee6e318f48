import { u8At } from '#arrays/read.js';
import type { Cursor } from '#service-plane/tls/tls-cursor.js';

const HOST_NAME = 0;
const NAME_BYTES = 253;
const LABEL_BYTES = 63;
const DOT = 0x2e;
const A_TO_Z_UPPER = { first: 0x41, last: 0x5a } as const;

/**
 * Reads the host name of a server_name extension (RFC 6066, 3), in lower case. Returns null for any content
 * that different servers could read differently. As in OpenSSL, other name types and a second name are
 * rejected. OpenSSL accepts a dot at the end and IP addresses, although the RFC forbids both. This function
 * removes the dot, and rejects addresses and invalid host names.
 */
export function readServerName(extension: Cursor): string | null {
  const list = extension.vector(2);
  if (list.number(1) !== HOST_NAME || list.left === 0) return null;
  const host = list.vector(2);
  const name = host.rest();
  return extension.isSpent && list.isSpent && host.isSpent ? hostName(name) : null;
}

function hostName(bytes: Uint8Array): string | null {
  const length = bytes.at(-1) === DOT ? bytes.length - 1 : bytes.length;
  if (length === 0 || length > NAME_BYTES) return null;
  let name = '';
  let label = 0;
  for (let at = 0; at < length; at++) {
    const byte = u8At(bytes, at);
    if (byte === DOT ? label === 0 : !isLabelByte(byte)) return null;
    label = byte === DOT ? 0 : label + 1;
    if (label > LABEL_BYTES) return null;
    name += String.fromCharCode(isUpper(byte) ? byte | 0x20 : byte);
  }
  return label === 0 || endsInNumber(name) ? null : name;
}

function isLabelByte(byte: number): boolean {
  return (
    (byte >= 0x61 && byte <= 0x7a) || isUpper(byte) || (byte >= 0x30 && byte <= 0x39) || byte === 0x2d || byte === 0x5f
  );
}

function isUpper(byte: number): boolean {
  return byte >= A_TO_Z_UPPER.first && byte <= A_TO_Z_UPPER.last;
}

/**
 * Returns true if the last label of a name is a number. Such a name can be read as an IPv4 address in short,
 * octal or hexadecimal form.
 */
function endsInNumber(name: string): boolean {
  return /(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$/.test(name);
}
