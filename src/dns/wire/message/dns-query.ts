import { u8At } from '#arrays/read.js';
import { putU16, u16 } from '#dns/wire/bytes.js';
import { FLAG, HEADER_BYTES, LABEL_BYTES, NAME_BYTES, OPCODE, RCODE, TYPE } from '#dns/wire/dns-numbers.js';
import { keyOf, type NameKey, type WireName } from '#dns/wire/name.js';
import { type Edns, ednsBytes, putEdns, readEdns } from './edns.js';

/** A DNS query from a client. `flags`: the 16 bits after the id. */
export type Query = {
  readonly id: number;
  readonly flags: number;
  readonly opcode: number;
  readonly name: WireName;
  readonly key: NameKey;
  readonly type: number;
  readonly class: number;
  readonly edns: Edns | null;
};

/**
 * The reason why bytes are not a valid query. `fault` is a stable code, and `rcode` is the rcode of the
 * response. `id` is null if the datagram has an incomplete header or is a response. Such a datagram must not
 * be answered: two servers could answer each other in an endless loop.
 */
export type QueryFault = {
  readonly fault: string;
  readonly id: number | null;
  readonly rcode: number;
  readonly flags: number;
};

/**
 * Parses a standard query that has exactly one question and at most one OPT record. Any other content is a
 * fault. The result contains copies only, so the result does not keep `bytes` in memory.
 */
export function readQuery(bytes: Uint8Array): Query | QueryFault {
  if (bytes.length < HEADER_BYTES) return { fault: 'short_header', id: null, rcode: RCODE.formerr, flags: 0 };
  const flags = u16(bytes, 2);
  if ((flags & FLAG.qr) !== 0) return { fault: 'response', id: null, rcode: RCODE.formerr, flags };
  const opcode = (flags >>> 11) & 15;
  if (opcode !== OPCODE.query) return refused(bytes, 'opcode', RCODE.notimp);
  // A query with more than one question is a format error (RFC 9619).
  if (u16(bytes, 4) !== 1) return refused(bytes, 'question_count');
  if (u16(bytes, 6) !== 0 || u16(bytes, 8) !== 0) return refused(bytes, 'record_in_query');
  const end = questionEnd(bytes);
  if (typeof end === 'string') return refused(bytes, end);
  if (end + 4 > bytes.length) return refused(bytes, 'truncated');
  const additionals = u16(bytes, 10);
  let edns: Edns | null = null;
  if (additionals > 0) {
    const read = onlyOpt(bytes, end + 4, additionals);
    if ('fault' in read) return read;
    edns = read;
  } else if (end + 4 !== bytes.length) return refused(bytes, 'trailing_bytes');
  const name = new Uint8Array(end - HEADER_BYTES);
  for (let at = 0; at < name.length; at++) name[at] = u8At(bytes, HEADER_BYTES + at);
  return {
    id: u16(bytes, 0),
    flags,
    opcode,
    name,
    key: keyOf(name),
    type: u16(bytes, end),
    class: u16(bytes, end + 2),
    edns,
  };
}

/**
 * Returns the offset after the name of the question, or a fault code. A compression pointer is a fault,
 * because a query contains no earlier name to which the pointer could point.
 */
function questionEnd(bytes: Uint8Array): number | string {
  let at = HEADER_BYTES;
  for (;;) {
    if (at >= bytes.length) return 'truncated';
    const length = u8At(bytes, at);
    if (length === 0) break;
    if (length > LABEL_BYTES) return length >= 0xc0 ? 'compressed_question' : 'label_type';
    at += length + 1;
    if (at >= HEADER_BYTES + NAME_BYTES) return 'name_too_long';
  }
  return at + 1;
}

function onlyOpt(bytes: Uint8Array, from: number, count: number): Edns | QueryFault {
  if (bytes[from] !== 0) return refused(bytes, from < bytes.length ? 'additional_record' : 'truncated');
  if (from + 11 > bytes.length) return refused(bytes, 'truncated');
  const type = u16(bytes, from + 1);
  if (type !== TYPE.opt) return unsupported(bytes, type);
  const end = from + 11 + u16(bytes, from + 9);
  if (end > bytes.length) return refused(bytes, 'truncated');
  if (count > 1) return unsupported(bytes, nextType(bytes, end));
  if (end !== bytes.length) return refused(bytes, 'trailing_bytes');
  const edns = readEdns(bytes, from + 1, end);
  if (edns === null) return refused(bytes, 'edns_options');
  if (edns.version !== 0) return refused(bytes, 'edns_version', RCODE.badvers);
  return edns;
}

/**
 * Returns the type of the record at offset `at`; -1 if the record is incomplete. The type only selects the
 * fault code of a query that is rejected anyway.
 */
function nextType(bytes: Uint8Array, at: number): number {
  let end = at;
  while (end < bytes.length && u8At(bytes, end) > 0 && u8At(bytes, end) <= LABEL_BYTES) {
    end += u8At(bytes, end) + 1;
  }
  end += (bytes[end] ?? 0) >= 0xc0 ? 2 : 1;
  return end + 2 > bytes.length ? -1 : u16(bytes, end);
}

function unsupported(bytes: Uint8Array, type: number): QueryFault {
  if (type === TYPE.opt) return refused(bytes, 'several_opt');
  if (type === TYPE.tsig) return refused(bytes, 'tsig', RCODE.notimp);
  if (type === TYPE.sig) return refused(bytes, 'sig0', RCODE.notimp);
  return refused(bytes, type < 0 ? 'truncated' : 'additional_record');
}

function refused(bytes: Uint8Array, fault: string, rcode: number = RCODE.formerr): QueryFault {
  return { fault, id: u16(bytes, 0), rcode, flags: u16(bytes, 2) };
}

/**
 * Returns the bytes of a query to an upstream. `authenticData` requests the AD bit without DNSSEC records
 * (RFC 6840, 5.7).
 */
export function writeQuery(query: {
  readonly id: number;
  readonly name: WireName;
  readonly type: number;
  readonly class: number;
  readonly recursionDesired: boolean;
  readonly checkingDisabled: boolean;
  readonly authenticData?: boolean;
  readonly edns: Edns | null;
}): Uint8Array {
  const { name, edns } = query;
  const end = HEADER_BYTES + name.length + 4;
  const out = new Uint8Array(end + (edns === null ? 0 : ednsBytes(edns.options)));
  putU16(out, 0, query.id);
  const desired = query.recursionDesired ? FLAG.rd : 0;
  const disabled = query.checkingDisabled ? FLAG.cd : 0;
  putU16(out, 2, desired | disabled | (query.authenticData === true ? FLAG.ad : 0));
  out[5] = 1;
  out.set(name, HEADER_BYTES);
  putU16(out, end - 4, query.type);
  putU16(out, end - 2, query.class);
  if (edns !== null) {
    out[11] = 1;
    putEdns(out, end, edns, edns.dnssecOk, 0);
  }
  return out;
}
