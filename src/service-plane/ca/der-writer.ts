import asn1 from 'node-forge/lib/asn1.js';
import { u8At } from '#arrays/read.js';

/**
 * DER for certificates that Weir writes. DER from a peer is read by `der-reader.ts` only, never by
 * node-forge.
 */
export type Der = ReturnType<typeof asn1.create>;

const { UNIVERSAL, CONTEXT_SPECIFIC } = asn1.Class;
const { Type } = asn1;
const CONSTRUCTED = 0x20;

export const sequence = (...parts: Der[]): Der => asn1.create(UNIVERSAL, Type.SEQUENCE, true, parts);
export const set = (...parts: Der[]): Der => asn1.create(UNIVERSAL, Type.SET, true, parts);
export const oid = (dotted: string): Der => asn1.create(UNIVERSAL, Type.OID, false, asn1.oidToDer(dotted).getBytes());
/**
 * An INTEGER from bytes in big-endian order. The first bit must be 0, because a negative number would result
 * otherwise.
 */
export const integer = (bytes: Uint8Array): Der => asn1.create(UNIVERSAL, Type.INTEGER, false, binary(bytes));
export const yes = (): Der => asn1.create(UNIVERSAL, Type.BOOLEAN, false, '\xff');
export const nothing = (): Der => asn1.create(UNIVERSAL, Type.NULL, false, '');
export const utf8 = (text: string): Der => asn1.create(UNIVERSAL, Type.UTF8, false, binary(Buffer.from(text)));
export const octets = (bytes: Uint8Array): Der => asn1.create(UNIVERSAL, Type.OCTETSTRING, false, binary(bytes));
export const bits = (bytes: Uint8Array, unused = 0): Der =>
  asn1.create(UNIVERSAL, Type.BITSTRING, false, String.fromCharCode(unused) + binary(bytes));
/** An element with a context-specific tag, which contains complete elements. */
export const explicit = (tag: number, ...parts: Der[]): Der => asn1.create(CONTEXT_SPECIFIC, tag, true, parts);
/** An element whose own tag is replaced by a context-specific tag. */
export const implicit = (tag: number, bytes: Uint8Array): Der =>
  asn1.create(CONTEXT_SPECIFIC, tag, false, binary(bytes));

/**
 * A UTCTime or GeneralizedTime in whole seconds. RFC 5280, 4.1.2.5: from the year 2050 on, the year has four
 * digits (GeneralizedTime).
 */
export function time(at: Date): Der {
  const digits = at.toISOString().replace(/[-:T]|[.]\d+/g, '');
  return at.getUTCFullYear() < 2050
    ? asn1.create(UNIVERSAL, Type.UTCTIME, false, digits.slice(2))
    : asn1.create(UNIVERSAL, Type.GENERALIZEDTIME, false, digits);
}

/** Wraps `bytes`, which already are the DER of a SEQUENCE. */
export function encodedSequence(bytes: Uint8Array): Der {
  const first = u8At(bytes, 1);
  const header = first < 0x80 ? 2 : 2 + (first & 0x7f);
  return asn1.create(UNIVERSAL, Type.SEQUENCE | CONSTRUCTED, false, binary(bytes.subarray(header)));
}

export const bytesOf = (der: Der): Buffer => Buffer.from(asn1.toDer(der).getBytes(), 'latin1');

function binary(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}
