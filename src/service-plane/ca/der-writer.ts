import asn1 from 'node-forge/lib/asn1.js';
import { u8At } from '#arrays/read.js';

/**
 * A DER element of a certificate that Weir writes, as an object of node-forge. Only `der-reader.ts` reads DER
 * from a peer; node-forge does not.
 */
export type Der = ReturnType<typeof asn1.create>;

const { UNIVERSAL, CONTEXT_SPECIFIC } = asn1.Class;
const { Type } = asn1;
const CONSTRUCTED = 0x20;

export const sequence = (...parts: Der[]): Der => asn1.create(UNIVERSAL, Type.SEQUENCE, true, parts);
export const set = (...parts: Der[]): Der => asn1.create(UNIVERSAL, Type.SET, true, parts);
export const oid = (dotted: string): Der => asn1.create(UNIVERSAL, Type.OID, false, asn1.oidToDer(dotted).getBytes());
/**
 * Returns an INTEGER from bytes in big-endian order. The first bit must be 0; otherwise the number would be
 * negative.
 */
export const integer = (bytes: Uint8Array): Der => asn1.create(UNIVERSAL, Type.INTEGER, false, binary(bytes));
export const yes = (): Der => asn1.create(UNIVERSAL, Type.BOOLEAN, false, '\xff');
export const nothing = (): Der => asn1.create(UNIVERSAL, Type.NULL, false, '');
export const utf8 = (text: string): Der => asn1.create(UNIVERSAL, Type.UTF8, false, binary(Buffer.from(text)));
export const octets = (bytes: Uint8Array): Der => asn1.create(UNIVERSAL, Type.OCTETSTRING, false, binary(bytes));
export const bits = (bytes: Uint8Array, unused = 0): Der =>
  asn1.create(UNIVERSAL, Type.BITSTRING, false, String.fromCharCode(unused) + binary(bytes));
/** Returns an element with EXPLICIT tagging: a context-specific tag that contains complete elements. */
export const explicit = (tag: number, ...parts: Der[]): Der => asn1.create(CONTEXT_SPECIFIC, tag, true, parts);
/**
 * Returns an element with IMPLICIT tagging: a context-specific tag replaces its own tag. `bytes` is the
 * content.
 */
export const implicit = (tag: number, bytes: Uint8Array): Der =>
  asn1.create(CONTEXT_SPECIFIC, tag, false, binary(bytes));

/**
 * Returns a time in whole seconds: a UTCTime before the year 2050, or else a GeneralizedTime, whose year has
 * four digits (RFC 5280, 4.1.2.5).
 */
export function time(at: Date): Der {
  const digits = at.toISOString().replace(/[-:T]|[.]\d+/g, '');
  return at.getUTCFullYear() < 2050
    ? asn1.create(UNIVERSAL, Type.UTCTIME, false, digits.slice(2))
    : asn1.create(UNIVERSAL, Type.GENERALIZEDTIME, false, digits);
}

/** Returns a `Der` object for `bytes`, which already are the DER of a SEQUENCE. */
export function encodedSequence(bytes: Uint8Array): Der {
  const first = u8At(bytes, 1);
  const header = first < 0x80 ? 2 : 2 + (first & 0x7f);
  return asn1.create(UNIVERSAL, Type.SEQUENCE | CONSTRUCTED, false, binary(bytes.subarray(header)));
}

export const bytesOf = (der: Der): Buffer => Buffer.from(asn1.toDer(der).getBytes(), 'latin1');

function binary(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}
