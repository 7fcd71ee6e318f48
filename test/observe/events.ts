import type { End } from '#contracts/datapath/translation.js';
import { type Address, IPPROTO, isIcmp, type Verdict } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { EventBatch, type PackedEvents, RECORD_BYTES, RECORD_HEADER_BYTES } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_OFFSETS, EVENT_TYPE, type EventType } from '#dataplane/events/event.js';

export type EventInput = {
  readonly type: EventType;
  readonly verdict?: Verdict | null;
  readonly dropReason?: number;
  readonly protocol?: number;
  readonly source?: Address;
  readonly destination?: Address;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  readonly icmp?: readonly [type: number, code: number];
  readonly epoch?: number;
  readonly hit?: number;
  readonly hitCheck?: number;
  readonly suppressed?: number;
  readonly flags?: number;
  /** The time from `unixMs`, when the flow was opened, to the event, in ns. */
  readonly timeNs?: bigint;
  readonly state?: number;
  /** The destination before DNAT. */
  readonly wire?: End<Address>;
};

/**
 * Returns a batch of records in the layout of the kernel's ring buffer. The monotonic time 0
 * corresponds to the Unix time `unixMs`. `lost` is the number of records that the kernel could not
 * store.
 */
export function batchOf(events: readonly EventInput[], options: { lost?: number; unixMs?: number } = {}): EventBatch {
  return new EventBatch(packedOf(events, options));
}

export function packedOf(events: readonly EventInput[], { lost = 0, unixMs = 0 } = {}): PackedEvents {
  const records = new ArrayBuffer(events.length * RECORD_BYTES);
  const view = new DataView(records);
  for (const [index, event] of events.entries()) {
    const at = (field: keyof typeof EVENT_OFFSETS): number =>
      index * RECORD_BYTES + RECORD_HEADER_BYTES + EVENT_OFFSETS[field];
    view.setBigUint64(at('time_ns'), event.timeNs ?? 0n, true);
    view.setUint8(at('type'), EVENT_TYPE[event.type]);
    const verdict = event.verdict === undefined ? 'allow' : event.verdict;
    view.setUint8(at('verdict'), verdict === null ? 0 : VERDICT_NUMBER[verdict]);
    view.setUint8(at('drop_reason'), event.dropReason ?? 0);
    view.setUint8(at('protocol'), event.protocol ?? IPPROTO.tcp);
    const address = (low: number, high: number, value: Address): void => {
      view.setBigUint64(low, BigInt(value) & 0xffff_ffff_ffff_ffffn, true);
      view.setBigUint64(high, BigInt(value) >> 64n, true);
    };
    address(at('source'), at('source') + 8, event.source ?? 0);
    address(at('destination'), at('destination') + 8, event.destination ?? 0);
    view.setUint16(at('source_port'), event.sourcePort ?? 0, true);
    view.setUint16(at('destination_port'), event.destinationPort ?? 0, true);
    view.setUint8(at('icmp_type'), event.icmp?.[0] ?? 0);
    view.setUint8(at('icmp_code'), event.icmp?.[1] ?? 0);
    view.setUint8(at('tcp_flags'), event.state ?? 0);
    const family = typeof event.source === 'bigint' ? EVENT_FLAG.ipv6 : 0;
    view.setUint8(at('flags'), (event.flags ?? 0) | family | (event.wire === undefined ? 0 : EVENT_FLAG.translated));
    if (event.wire !== undefined) {
      address(at('packets') + 8, at('bytes') + 8, event.wire.address);
      if (!isIcmp(event.protocol ?? IPPROTO.tcp)) view.setUint16(at('icmp_type'), event.wire.port, true);
    }
    view.setUint32(at('epoch'), event.epoch ?? 0, true);
    view.setUint32(at('hit'), event.hit ?? 0, true);
    view.setUint32(at('hit_check'), event.hitCheck ?? 0, true);
    view.setUint32(at('suppressed'), event.suppressed ?? 0, true);
  }
  return { records, count: events.length, lost, monotonicNs: 0, unixMs };
}
