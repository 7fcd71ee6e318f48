import { u32At } from '#arrays/read.js';
import { DROP_REASON, FLOW_STATE, namesByNumber } from '#contracts/datapath/datapath-numbers.js';
import type { End } from '#contracts/datapath/translation.js';
import { type Address, ICMP, PORT_PROTOCOLS, type Verdict } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import {
  EVENT_BYTES,
  EVENT_FLAG,
  EVENT_OFFSETS,
  EVENT_TYPE,
  type EventType,
  eventAddress,
  isFlowEvent,
} from './event.js';
import type { FlowObservation, Observation, PacketObservation } from './observation.js';

/**
 * Ring-buffer records that one thread passes to another thread. Each event follows the 8 bytes of its record
 * header, as in the ring buffer.
 */
export type PackedEvents = {
  readonly records: ArrayBuffer;
  readonly count: number;
  /**
   * Number of events that the datapath lost because the ring buffer was full, between the end of the
   * previous batch and the last record of this batch.
   */
  readonly lost: number;
  /**
   * The time of the batch on the monotonic clock and on the wall clock. The pair converts event times to
   * dates.
   */
  readonly monotonicNs: number;
  readonly unixMs: number;
};

export const RECORD_HEADER_BYTES = 8;
export const RECORD_BYTES = RECORD_HEADER_BYTES + EVENT_BYTES;
export const RECORD_WORDS = RECORD_BYTES / 4;

const TYPES = namesByNumber(EVENT_TYPE);
const VERDICTS = namesByNumber(VERDICT_NUMBER);
const DROP_REASONS = namesByNumber(DROP_REASON);
const FLOW_STATES = namesByNumber(FLOW_STATE);

/**
 * The records of one read of the ring buffer, oldest first. The batch decodes a field only when a consumer
 * reads the field, so that unread fields cost nothing. All consumers share one batch.
 */
export class EventBatch {
  readonly count: number;
  readonly lost: number;
  /**
   * The undecoded records as 32-bit words. Record `index` begins with its header at word `index *
   * RECORD_WORDS`.
   */
  readonly words: Uint32Array;
  readonly #view: DataView;
  readonly #packed: PackedEvents;
  #suppressed: number | undefined;

  constructor(packed: PackedEvents) {
    this.#packed = packed;
    this.words = new Uint32Array(packed.records);
    this.#view = new DataView(packed.records);
    this.count = packed.count;
    this.lost = packed.lost;
  }

  /**
   * Converts a time in nanoseconds on the monotonic clock to the wall-clock time, in milliseconds since
   * 1970.
   */
  unixMs(timeNs: number): number {
    return this.#packed.unixMs - (this.#packed.monotonicNs - timeNs) / 1e6;
  }

  /** The clocks that convert event times to dates. */
  get clock(): Pick<PackedEvents, 'monotonicNs' | 'unixMs'> {
    const { monotonicNs, unixMs } = this.#packed;
    return { monotonicNs, unixMs };
  }

  type(index: number): EventType {
    return nameOf(TYPES, this.#view.getUint8(this.#at(index) + EVENT_OFFSETS.type), 'event type');
  }

  source(index: number): Address {
    return this.#address(this.#at(index), EVENT_OFFSETS.source);
  }

  destination(index: number): Address {
    return this.#address(this.#at(index), EVENT_OFFSETS.destination);
  }

  /**
   * Returns the destination on the wire (in the header, before DNAT) of event `index`; null if the node has
   * not translated it.
   */
  wireDestination(index: number): End<Address> | null {
    return this.#wireDestination(this.#at(index));
  }

  observation(index: number): Observation {
    const type = this.type(index);
    const at = this.#at(index);
    return isFlowEvent(type) ? this.#flow(at, type) : this.#packet(at, type);
  }

  /**
   * Sum of the field `suppressed` of these records: the number of events that the datapath's rate limit
   * suppressed before these events, for the same sources.
   */
  get suppressed(): number {
    if (this.#suppressed === undefined) {
      let sum = 0;
      const first = (RECORD_HEADER_BYTES + EVENT_OFFSETS.suppressed) / 4;
      for (let at = first; at < this.words.length; at += RECORD_WORDS) sum += u32At(this.words, at);
      this.#suppressed = sum;
    }
    return this.#suppressed;
  }

  tally(): Record<EventType, number> {
    const counts = countsOfEvents();
    for (let index = 0; index < this.count; index++) counts[this.type(index)]++;
    return counts;
  }

  *[Symbol.iterator](): Generator<Observation> {
    for (let index = 0; index < this.count; index++) yield this.observation(index);
  }

  // `#packet` and `#flow` each list the fields that packets and flows have in common. One object literal is
  // several times as fast as adding fields to a common object.
  #packet(at: number, type: PacketObservation['type']): PacketObservation {
    const view = this.#view;
    const flags = view.getUint8(at + EVENT_OFFSETS.flags);
    const reason = view.getUint8(at + EVENT_OFFSETS.drop_reason);
    const protocol = view.getUint8(at + EVENT_OFFSETS.protocol);
    const source = this.#address(at, EVENT_OFFSETS.source);
    return {
      type,
      timeNs: this.#u64(at + EVENT_OFFSETS.time_ns),
      verdict: verdictOf(view.getUint8(at + EVENT_OFFSETS.verdict)),
      audited: (flags & EVENT_FLAG.audited) !== 0,
      protocol,
      ifindex: view.getUint32(at + EVENT_OFFSETS.ifindex, true),
      source,
      destination: this.#address(at, EVENT_OFFSETS.destination),
      sourcePort: view.getUint16(at + EVENT_OFFSETS.source_port, true),
      destinationPort: view.getUint16(at + EVENT_OFFSETS.destination_port, true),
      epoch: view.getUint32(at + EVENT_OFFSETS.epoch, true),
      word: view.getUint32(at + EVENT_OFFSETS.word, true),
      hit: view.getUint32(at + EVENT_OFFSETS.hit, true),
      hitCheck: view.getUint32(at + EVENT_OFFSETS.hit_check, true),
      suppressed: view.getUint32(at + EVENT_OFFSETS.suppressed, true),
      wireDestination: this.#wireDestination(at),
      dropReason: reason === 0 ? null : nameOf(DROP_REASONS, reason, 'drop reason'),
      outgoing: (flags & EVENT_FLAG.outgoing) !== 0,
      icmp:
        protocol === ICMP[typeof source === 'number' ? 'ipv4' : 'ipv6']
          ? { type: view.getUint8(at + EVENT_OFFSETS.icmp_type), code: view.getUint8(at + EVENT_OFFSETS.icmp_code) }
          : null,
      tcpFlags: view.getUint8(at + EVENT_OFFSETS.tcp_flags),
      packets: this.#u64(at + EVENT_OFFSETS.packets),
      length: view.getUint32(at + EVENT_OFFSETS.length, true),
    };
  }

  #flow(at: number, type: FlowObservation['type']): FlowObservation {
    const view = this.#view;
    const flags = view.getUint8(at + EVENT_OFFSETS.flags);
    const reason = view.getUint8(at + EVENT_OFFSETS.drop_reason);
    const isCut = (flags & EVENT_FLAG.cut) !== 0;
    const wireDestination = this.#wireDestination(at);
    const ofReplies = (offset: number): number => (wireDestination === null ? this.#u64(at + offset + 8) : 0);
    return {
      type,
      timeNs: this.#u64(at + EVENT_OFFSETS.time_ns),
      verdict: verdictOf(view.getUint8(at + EVENT_OFFSETS.verdict)),
      audited: (flags & EVENT_FLAG.audited) !== 0,
      protocol: view.getUint8(at + EVENT_OFFSETS.protocol),
      ifindex: view.getUint32(at + EVENT_OFFSETS.ifindex, true),
      source: this.#address(at, EVENT_OFFSETS.source),
      destination: this.#address(at, EVENT_OFFSETS.destination),
      sourcePort: view.getUint16(at + EVENT_OFFSETS.source_port, true),
      destinationPort: view.getUint16(at + EVENT_OFFSETS.destination_port, true),
      epoch: view.getUint32(at + EVENT_OFFSETS.epoch, true),
      word: view.getUint32(at + EVENT_OFFSETS.word, true),
      hit: view.getUint32(at + EVENT_OFFSETS.hit, true),
      hitCheck: view.getUint32(at + EVENT_OFFSETS.hit_check, true),
      suppressed: view.getUint32(at + EVENT_OFFSETS.suppressed, true),
      state: nameOf(FLOW_STATES, view.getUint8(at + EVENT_OFFSETS.tcp_flags), 'flow state'),
      endReason: isCut ? 'cut' : reason === 0 ? null : nameOf(DROP_REASONS, reason, 'drop reason'),
      foreign: (flags & EVENT_FLAG.foreign) !== 0,
      openedNs: this.#u64(at + EVENT_OFFSETS.opened_ns),
      wireDestination,
      packets: [this.#u64(at + EVENT_OFFSETS.packets), ofReplies(EVENT_OFFSETS.packets)],
      bytes: [this.#u64(at + EVENT_OFFSETS.bytes), ofReplies(EVENT_OFFSETS.bytes)],
    };
  }

  #wireDestination(at: number): End<Address> | null {
    const view = this.#view;
    const flags = view.getUint8(at + EVENT_OFFSETS.flags);
    if ((flags & EVENT_FLAG.translated) === 0) return null;
    const [low, high] = [EVENT_OFFSETS.packets, EVENT_OFFSETS.bytes].map((field) => at + field + 8) as [number, number];
    const address =
      (flags & EVENT_FLAG.ipv6) === 0
        ? view.getUint32(low, true)
        : (view.getBigUint64(high, true) << 64n) | view.getBigUint64(low, true);
    const hasPorts = PORT_PROTOCOLS.includes(view.getUint8(at + EVENT_OFFSETS.protocol));
    return { address, port: hasPorts ? view.getUint16(at + EVENT_OFFSETS.icmp_type, true) : 0 };
  }

  #address(at: number, field: number): Address {
    return eventAddress(this.#view, at + field, this.#view.getUint8(at + EVENT_OFFSETS.flags));
  }

  #at(index: number): number {
    if (index < 0 || index >= this.count)
      throw new RangeError(`read event ${index} of a batch: the batch has ${this.count} events`);
    return index * RECORD_BYTES + RECORD_HEADER_BYTES;
  }

  /**
   * Returns an unsigned 64-bit number. The result is exact up to 2^53, which is 104 days in nanoseconds.
   * Above 2^53, rounding gives an error of a few units.
   */
  #u64(at: number): number {
    return this.#view.getUint32(at, true) + this.#view.getUint32(at + 4, true) * 0x1_0000_0000;
  }
}

function verdictOf(number: number): Verdict | null {
  return number === 0 ? null : nameOf(VERDICTS, number, 'verdict');
}

function nameOf<N>(names: readonly (N | undefined)[], number: number, what: string): N {
  const name = names[number];
  if (name === undefined)
    throw new Error(`decode an event: this build does not know the ${what} ${number} that the datapath sent`);
  return name;
}

/** Returns a count of 0 for each type of event. */
export function countsOfEvents(): Record<EventType, number> {
  return Object.fromEntries(Object.keys(EVENT_TYPE).map((type) => [type, 0])) as Record<EventType, number>;
}
