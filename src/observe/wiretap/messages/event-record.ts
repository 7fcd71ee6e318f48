import { u32At } from '#arrays/read.js';
import { namesByNumber } from '#contracts/datapath/datapath-numbers.js';
import type { Verdict } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { RECORD_HEADER_BYTES, RECORD_WORDS } from '#dataplane/events/batch.js';
import { EVENT_OFFSETS, EVENT_TYPE } from '#dataplane/events/event.js';

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

/** The name of each verdict, at the index of its number. The number 0 has no name: no rule was evaluated. */
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

export function wide(words: Uint32Array, at: number): number {
  return u32At(words, at) + u32At(words, at + 1) * 0x1_0000_0000;
}
