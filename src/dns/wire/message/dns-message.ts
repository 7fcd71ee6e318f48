import { u8At } from '#arrays/read.js';
import { u16, u32 } from '#dns/wire/bytes.js';
import { FLAG, HEADER_BYTES, OPCODE, TYPE } from '#dns/wire/dns-numbers.js';
import type { WireName } from '#dns/wire/name.js';
import { readData } from '#dns/wire/records/record-data.js';
import { type Edns, readEdns } from './edns.js';
import { MessageCursor } from './message-cursor.js';

/**
 * A resource record of a DNS message. `ttl` is in seconds, below 2^31. `data` is the record data with
 * decompressed names.
 */
export type ResourceRecord = {
  readonly name: WireName;
  readonly type: number;
  readonly class: number;
  readonly ttl: number;
  readonly data: Uint8Array;
};

/**
 * A DNS message from an upstream. `flags`: the 16 bits after the id. `rcode`: the extended rcode, with the
 * upper bits from the OPT record. `additionals` excludes the OPT record.
 */
export type Message = {
  readonly id: number;
  readonly flags: number;
  readonly rcode: number;
  readonly question: { readonly name: WireName; readonly type: number; readonly class: number };
  readonly answers: readonly ResourceRecord[];
  readonly authorities: readonly ResourceRecord[];
  readonly additionals: readonly ResourceRecord[];
  readonly edns: Edns | null;
};

/** The reason why bytes are not a valid DNS message. `fault` is a stable code. */
export type MessageFault = { readonly fault: string };

/** The least size of a resource record in bytes: a root name, type, class, TTL and RDLENGTH. */
const RECORD_BYTES = 11;
const GREATEST_TTL = 0x7fff_ffff;

/**
 * Parses a DNS message that has exactly one question. A fault in any part rejects the whole message. The
 * result contains copies only, so the result does not keep `bytes` in memory.
 */
export function readMessage(bytes: Uint8Array): Message | MessageFault {
  if (bytes.length < HEADER_BYTES) return { fault: 'short_header' };
  if (u16(bytes, 4) !== 1) return { fault: 'question_count' };
  const reader = new MessageReader(bytes);
  return reader.message() ?? { fault: reader.cursor.fault };
}

class MessageReader {
  readonly cursor: MessageCursor;
  #edns: Edns | null = null;
  #extendedRcode = 0;

  constructor(bytes: Uint8Array) {
    this.cursor = new MessageCursor(bytes);
  }

  message(): Message | null {
    const { cursor } = this;
    const { bytes } = cursor;
    const name = cursor.name(bytes.length, true);
    if (name === null) return null;
    const end = cursor.at + 4;
    if (end > bytes.length) return cursor.fail('truncated');
    const question = { name, type: u16(bytes, end - 4), class: u16(bytes, end - 2) };
    cursor.at = end;
    const counts = u16(bytes, 6) + u16(bytes, 8) + u16(bytes, 10);
    if (counts * RECORD_BYTES > bytes.length - end) return cursor.fail('record_count');
    const answers = this.#section(u16(bytes, 6), false);
    const authorities = answers && this.#section(u16(bytes, 8), false);
    const additionals = authorities && this.#section(u16(bytes, 10), true);
    if (answers === null || authorities === null || additionals === null) return null;
    if (cursor.at !== bytes.length) return cursor.fail('trailing_bytes');
    const flags = u16(bytes, 2);
    const rcode = (this.#extendedRcode << 4) | (flags & 15);
    return { id: u16(bytes, 0), flags, rcode, question, answers, authorities, additionals, edns: this.#edns };
  }

  #section(count: number, additional: boolean): ResourceRecord[] | null {
    const records: ResourceRecord[] = [];
    for (let index = 0; index < count; index++) {
      const record = this.#record(additional);
      if (record !== null) records.push(record);
      else if (this.cursor.fault !== '') return null;
    }
    return records;
  }

  /**
   * Parses one record. Returns null if the record has a fault. Also returns null for the OPT record, which is
   * stored in `#edns`.
   */
  #record(additional: boolean): ResourceRecord | null {
    const { cursor } = this;
    const { bytes } = cursor;
    const name = cursor.name(bytes.length, true);
    if (name === null) return null;
    const { at } = cursor;
    if (at + 10 > bytes.length) return cursor.fail('truncated');
    const type = u16(bytes, at);
    const end = at + 10 + u16(bytes, at + 8);
    if (end > bytes.length) return cursor.fail('truncated');
    cursor.at = end;
    if (type === TYPE.opt) return this.#opt(name, at, end, additional);
    // Reject the types from TKEY to ANY, which are no data types (RFC 6895, 3.1). TSIG is one of these types:
    // Weir signs no queries, so no response may contain a TSIG record.
    if (type >= TYPE.tkey && type <= TYPE.any) return cursor.fail('meta_type');
    cursor.at = at + 10;
    const data = readData(cursor, type, end);
    if (data === null) return null;
    const ttl = u32(bytes, at + 4);
    // A TTL with the top bit set counts as 0 (RFC 2181, 8).
    return { name, type, class: u16(bytes, at + 2), ttl: ttl > GREATEST_TTL ? 0 : ttl, data };
  }

  #opt(name: WireName, at: number, end: number, additional: boolean): null {
    const { cursor } = this;
    if (!additional) return cursor.fail('misplaced_opt');
    if (this.#edns !== null) return cursor.fail('several_opt');
    if (name.length !== 1) return cursor.fail('opt_name');
    this.#edns = readEdns(cursor.bytes, at, end);
    if (this.#edns === null) return cursor.fail('edns_options');
    this.#extendedRcode = u8At(cursor.bytes, at + 4);
    return null;
  }
}

/**
 * Whether `message` is the response to the query `sent`: a response with opcode QUERY and the same id and
 * question. The names must also have equal letter case. A client may send random letter case, which the
 * sender of a forged answer must guess (0x20 encoding).
 */
export function isResponseTo(
  message: Message,
  sent: { readonly id: number; readonly name: WireName; readonly type: number; readonly class: number },
): boolean {
  const { id, flags, question } = message;
  if ((flags & FLAG.qr) === 0 || ((flags >>> 11) & 15) !== OPCODE.query) return false;
  if (id !== sent.id || question.type !== sent.type || question.class !== sent.class) return false;
  if (question.name.length !== sent.name.length) return false;
  for (let at = 0; at < sent.name.length; at++) if (question.name[at] !== sent.name[at]) return false;
  return true;
}
