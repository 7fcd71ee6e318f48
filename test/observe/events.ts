import type { End } from '#contracts/datapath/translation.js';
import { IPPROTO, type Verdict } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { EventBatch, type PackedEvents, RECORD_BYTES, RECORD_HEADER_BYTES } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_OFFSETS, EVENT_TYPE, type EventType } from '#dataplane/events/event.js';

export type EventInput = {
  readonly type: EventType;
  readonly verdict?: Verdict | null;
  readonly dropReason?: number;
  readonly protocol?: number;
  readonly source?: number;
  readonly destination?: number;
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
  readonly wire?: End;
  /** The source address and the destination address of an IPv6 packet, 16 bytes each. */
  readonly ipv6?: readonly [source: readonly number[], destination: readonly number[]];
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
    view.setUint32(at('source'), event.source ?? 0, true);
    view.setUint32(at('destination'), event.destination ?? 0, true);
    view.setUint16(at('source_port'), event.sourcePort ?? 0, true);
    view.setUint16(at('destination_port'), event.destinationPort ?? 0, true);
    view.setUint8(at('icmp_type'), event.icmp?.[0] ?? 0);
    view.setUint8(at('icmp_code'), event.icmp?.[1] ?? 0);
    view.setUint8(at('tcp_flags'), event.state ?? 0);
    view.setUint8(at('flags'), event.flags ?? (event.ipv6 === undefined ? 0 : EVENT_FLAG.ipv6));
    new Uint8Array(records).set((event.ipv6 ?? []).flat(), at('packets'));
    if (event.wire !== undefined) {
      view.setUint8(at('flags'), EVENT_FLAG.translated);
      view.setUint32(at('packets') + 8, event.wire.address, true);
      view.setUint32(at('bytes') + 8, event.wire.port, true);
    }
    view.setUint32(at('epoch'), event.epoch ?? 0, true);
    view.setUint32(at('hit'), event.hit ?? 0, true);
    view.setUint32(at('hit_check'), event.hitCheck ?? 0, true);
    view.setUint32(at('suppressed'), event.suppressed ?? 0, true);
  }
  return { records, count: events.length, lost, monotonicNs: 0, unixMs };
}
