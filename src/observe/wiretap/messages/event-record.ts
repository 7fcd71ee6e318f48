import { u32At } from '#arrays/read.js';
import { namesByNumber } from '#contracts/datapath/datapath-numbers.js';
import { type Address, ICMP, type Verdict } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { RECORD_HEADER_BYTES, RECORD_WORDS } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_OFFSETS, EVENT_TYPE } from '#dataplane/events/event.js';

/**
 * Converts the byte offset of a field in `struct event` to the index of its 32-bit word in a record of the
 * ring buffer. The comments below list the fields within a word from the least significant bits, because
 * records are little-endian.
 */
const word = (offset: number): number => (RECORD_HEADER_BYTES + offset) / 4;
export const AT = {
  timeLow: word(EVENT_OFFSETS.time_ns),
  timeHigh: word(EVENT_OFFSETS.time_ns) + 1,
  /** Layout of the 32-bit word: event type | verdict << 8 | drop reason << 16 | protocol << 24. */
  kind: word(EVENT_OFFSETS.type),
  ifindex: word(EVENT_OFFSETS.ifindex),
  /** An address has four words. An IPv4 address is in the first of them. */
  source: word(EVENT_OFFSETS.source),
  destination: word(EVENT_OFFSETS.destination),
  /** Layout of the 32-bit word: source port | destination port << 16. */
  ports: word(EVENT_OFFSETS.source_port),
  /**
   * Layout of the 32-bit word: ICMP type | ICMP code << 8 | TCP flags or flow state << 16 | event flags <<
   * 24.
   */
  details: word(EVENT_OFFSETS.icmp_type),
  epoch: word(EVENT_OFFSETS.epoch),
  word: word(EVENT_OFFSETS.word),
  hit: word(EVENT_OFFSETS.hit),
  hitCheck: word(EVENT_OFFSETS.hit_check),
  length: word(EVENT_OFFSETS.length),
  opened: word(EVENT_OFFSETS.opened_ns),
  packets: word(EVENT_OFFSETS.packets),
  bytes: word(EVENT_OFFSETS.bytes),
} as const;

/**
 * The name of each verdict, at the index of its number. The number 0 has no name: no rule was evaluated.
 */
export const VERDICT_NAMES: readonly (Verdict | undefined)[] = namesByNumber(VERDICT_NUMBER);
export const verdictName = (kind: number): Verdict | undefined => VERDICT_NAMES[(kind >>> 8) & 0xff];

/** The `type` field of a wiretap message about a kernel event. */
export type RecordType = 'flow' | 'flow_end' | 'flow_suspend' | 'flow_resume' | 'verdict';
const RECORD_TYPES: readonly (RecordType | undefined)[] = namesByNumber({
  flow: EVENT_TYPE.flow_opened,
  flow_end: EVENT_TYPE.flow_ended,
  flow_suspend: EVENT_TYPE.flow_suspended,
  flow_resume: EVENT_TYPE.flow_resumed,
});
export const recordType = (kind: number): RecordType => RECORD_TYPES[kind & 0xff] ?? 'verdict';

export const startOf = (index: number): number => index * RECORD_WORDS;

/** Whether the addresses of a record are those of IPv6. `details`: the word at `AT.details`. */
export const isOfIpv6 = (details: number): boolean => ((details >>> 24) & EVENT_FLAG.ipv6) !== 0;

/** Whether a record is about ICMP. `kind` and `details`: its words at `AT.kind` and `AT.details`. */
export const isIcmpRecord = (kind: number, details: number): boolean =>
  kind >>> 24 === ICMP[isOfIpv6(details) ? 'ipv6' : 'ipv4'];

/**
 * Returns the address that begins at a word of a record. `details`: the word at `AT.details` of the record.
 */
export function addressAt(words: Uint32Array, at: number, details: number): Address {
  return isOfIpv6(details) ? wideBig(words, at) | (wideBig(words, at + 2) << 64n) : u32At(words, at);
}

/** Returns the destination on the wire of a record that has one: the address before DNAT. */
export function wireAddressAt(words: Uint32Array, start: number, details: number): Address {
  const low = start + AT.packets + 2;
  return isOfIpv6(details) ? wideBig(words, low) | (wideBig(words, start + AT.bytes + 2) << 64n) : u32At(words, low);
}

const wideBig = (words: Uint32Array, at: number): bigint =>
  BigInt(u32At(words, at)) | (BigInt(u32At(words, at + 1)) << 32n);

export function wide(words: Uint32Array, at: number): number {
  return u32At(words, at) + u32At(words, at + 1) * 0x1_0000_0000;
}
