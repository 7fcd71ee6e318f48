import { u8At } from '#arrays/read.js';

export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  objectIdentifier: 0x06,
  sequence: 0x30,
  set: 0x31,
} as const;

/** One DER value (X.690). `bytes`: the whole value; `content`: the bytes after the tag and the length. */
export type DerValue = { readonly tag: number; readonly bytes: Uint8Array; readonly content: Uint8Array };

export class DerFault extends Error {}

/**
 * Reads a sequence of DER values up to the end of `bytes`.
 * @throws DerFault if the bytes are not valid DER. BER is not accepted.
 */
export function readDer(bytes: Uint8Array): readonly DerValue[] {
  const values: DerValue[] = [];
  let at = 0;
  while (at < bytes.length) {
    const value = readValue(bytes, at);
    values.push(value);
    at += value.bytes.length;
  }
  return values;
}

/**
 * Reads one DER value with the tag `tag`, which must end at the end of `bytes`.
 * @throws DerFault if the bytes are not such a value.
 */
export function readDerValue(bytes: Uint8Array, tag: number): DerValue {
  const [value, more] = readDer(bytes);
  if (more !== undefined) throw new DerFault('more than one DER value');
  return expected(value, tag);
}

/**
 * Returns `value` if it exists and has the tag `tag`.
 * @throws DerFault if the value is missing or has another tag.
 */
export function expected(value: DerValue | undefined, tag: number): DerValue {
  if (value?.tag !== tag) throw new DerFault(`a DER value has the tag ${value?.tag}, expected ${tag}`);
  return value;
}

/**
 * Returns the members of a constructed value, such as a SEQUENCE or SET.
 * @throws DerFault if the value is missing, has another tag, or contains invalid DER.
 */
export function membersOf(value: DerValue | undefined, tag: number = TAG.sequence): readonly DerValue[] {
  return readDer(expected(value, tag).content);
}

function readValue(bytes: Uint8Array, at: number): DerValue {
  const tag = u8At(bytes, at);
  if ((tag & 0x1f) === 0x1f) throw new DerFault('a DER tag has more than one byte, which is not supported');
  const first = bytes[at + 1] ?? 0x80;
  const width = first < 0x80 ? 0 : first & 0x7f;
  if (first === 0x80 || width > 3) throw new DerFault(`length ${first}`);
  let length = width === 0 ? first : 0;
  for (let index = 0; index < width; index++) length = (length << 8) | (bytes[at + 2 + index] ?? 0);
  if (width > 0 && (length < 0x80 || length >>> (8 * (width - 1)) === 0))
    throw new DerFault('the length of a DER value has too many bytes');
  const start = at + 2 + width;
  const end = start + length;
  if (end > bytes.length) throw new DerFault('the DER data ends within a value');
  return { tag, bytes: bytes.subarray(at, end), content: bytes.subarray(start, end) };
}

const LONGEST_IDENTIFIER = 64;

/**
 * Returns an object identifier in dotted form, such as `2.5.4.3`. The numbers are of type bigint, because a
 * rounded number could equal the number of another identifier.
 * @throws DerFault if the value is not a valid object identifier.
 */
export function readObjectIdentifier(value: DerValue | undefined): string {
  const { content } = expected(value, TAG.objectIdentifier);
  if (content.length === 0 || content.length > LONGEST_IDENTIFIER)
    throw new DerFault('an object identifier is empty or too long');
  const arcs: bigint[] = [];
  let arc = 0n;
  let isInside = false;
  for (const byte of content) {
    if (!isInside && byte === 0x80) throw new DerFault('an arc (number) of an object identifier has leading zeros');
    arc = (arc << 7n) | BigInt(byte & 0x7f);
    isInside = byte >= 0x80;
    if (isInside) continue;
    arcs.push(arc);
    arc = 0n;
  }
  const [first] = arcs;
  if (isInside || first === undefined) throw new DerFault('an object identifier ends within an arc (number)');
  const root = first < 80n ? first / 40n : 2n;
  return [root, first - root * 40n, ...arcs.slice(1)].join('.');
}
