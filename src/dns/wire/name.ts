import { u8At } from '#arrays/read.js';
import { LABEL_BYTES, NAME_BYTES } from './dns-numbers.js';

/**
 * A DNS name in wire form: length bytes and labels, ended by a zero byte. The name is uncompressed, keeps its
 * letter case and has 1–255 bytes.
 */
export type WireName = Uint8Array;

/**
 * A DNS name in wire form as a latin1 string with ASCII letters in lower case. Two keys are equal exactly if
 * the DNS names are equal. A dot inside a label is an ordinary character.
 */
export type NameKey = string;

/**
 * Maps each byte of a name in wire form to its lower case. Length bytes are below 64 and upper-case letters
 * are above 64, so length bytes stay unchanged and the caller need not parse the labels.
 */
export const LOWER = Uint8Array.from({ length: 256 }, (_, byte) => (byte >= 0x41 && byte <= 0x5a ? byte + 0x20 : byte));

const PLAIN = Uint8Array.from({ length: 256 }, (_, byte) => (/[a-z0-9_-]/.test(String.fromCharCode(byte)) ? 1 : 0));

const lowered = Buffer.alloc(NAME_BYTES);

export function keyOf(name: WireName): NameKey {
  const length = name.length;
  for (let at = 0; at < length; at++) lowered[at] = u8At(LOWER, u8At(name, at));
  return lowered.toString('latin1', 0, length);
}

/**
 * Builds a name in wire form from labels. Each character of a label is one byte (latin1). An empty list of
 * labels gives the root.
 * @throws RangeError if a label is empty, longer than 63 bytes or not latin1, or if the name is longer than
 * 255 bytes.
 */
export function nameOf(labels: readonly string[]): WireName {
  const length = labels.reduce((sum, label) => sum + label.length + 1, 1);
  if (length > NAME_BYTES) throw new RangeError(`encode a DNS name: ${length} bytes are more than ${NAME_BYTES}`);
  const name = new Uint8Array(length);
  let at = 0;
  for (const label of labels) {
    if (label.length < 1 || label.length > LABEL_BYTES)
      throw new RangeError(`encode a DNS name: a label has ${label.length} bytes, allowed are 1 to ${LABEL_BYTES}`);
    name[at++] = label.length;
    for (let index = 0; index < label.length; index++) {
      const byte = label.charCodeAt(index);
      if (byte > 255)
        throw new RangeError(
          `encode a DNS name: a label contains U+${byte.toString(16)}, allowed are characters up to U+ff`,
        );
      name[at++] = byte;
    }
  }
  return name;
}

export function labelsOf(key: NameKey): string[] {
  const labels: string[] = [];
  for (let at = 0; key.charCodeAt(at) > 0; ) {
    const end = at + 1 + key.charCodeAt(at);
    labels.push(key.slice(at + 1, end));
    at = end;
  }
  return labels;
}

/**
 * Returns the presentation form of a name without the last dot; the root is '.'. Special characters are
 * escaped (RFC 1035, 5.1 and RFC 4343, 2.1).
 */
export function presentationOf(key: NameKey): string {
  const labels = labelsOf(key);
  if (labels.length === 0) return '.';
  return labels.map((label) => label.replace(/[^!-~]|[.\\]/g, escaped)).join('.');
}

function escaped(char: string): string {
  return char === '.' || char === '\\' ? `\\${char}` : `\\${String(char.charCodeAt(0)).padStart(3, '0')}`;
}

/**
 * Whether all labels of a name consist of [a-z0-9_-]. The proxy relays answers for other names, but does not
 * grant their addresses.
 */
export function isPlain(key: NameKey): boolean {
  for (let at = 0, length = key.charCodeAt(0); length > 0; length = key.charCodeAt(at)) {
    const end = at + length;
    while (at < end) if (PLAIN[key.charCodeAt(++at)] !== 1) return false;
    at++;
  }
  return true;
}

/** Whether the name `key` is `zone` or a name below `zone`. The comparison is by whole labels. */
export function isWithin(key: NameKey, zone: NameKey): boolean {
  let at = 0;
  while (key.length - at > zone.length) at += key.charCodeAt(at) + 1;
  return key.length - at === zone.length && key.endsWith(zone);
}
