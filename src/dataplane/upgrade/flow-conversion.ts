import { FLOW_STATE, type FlowState, TICK_NS } from '#contracts/datapath-numbers.js';
import type { Field, StructLayout } from '#dataplane/abi/btf.js';
import { type Conversion, conversion } from './struct-conversion.js';

/**
 * The flow table that contains a flow: `half_open` for half-open flows, `flows` for established flows. In
 * layout version 2, each of these tables was a separate map.
 */
export type FlowTable = 'flows' | 'half_open';
/**
 * Converts a flow from the flow table `table` to another layout. Returns the flow table to which the
 * converted flow belongs.
 */
export type FlowConversion = (...args: [...Parameters<Conversion>, table: FlowTable]) => FlowTable;

/**
 * Offset of the active word in the field `judgement`, in bytes. This word tells by which policy the flow was
 * classified.
 */
const ACTIVE_WORD = 4;
const OPENED_BY_HIGH = 1;
const FIN = 16;
const PROTOCOL = { icmp: 1, tcp: 6, udp: 17, udpLite: 136 } as const;
const HALF_OPEN: ReadonlySet<FlowState> = new Set([
  'tcp_syn_sent',
  'tcp_syn_received',
  'udp_opened',
  'icmp_opened',
  'other_opened',
]);

/** Returns the layout of a `struct flow` that is directly followed by its `struct tally`. */
export function withTally(flow: StructLayout, tally: StructLayout): StructLayout {
  const behind = Object.entries(tally.fields).map(
    ([name, field]) => [name, { ...field, offset: flow.size + field.offset }] as const,
  );
  return { size: flow.size + tally.size, fields: { ...flow.fields, ...Object.fromEntries(behind) } };
}

/**
 * Returns a function that converts flows from one layout to another. If `samePolicy` is true, a flow keeps
 * its verdict. Otherwise the datapath classifies the next packet of the flow again, unless the flow is
 * foreign (opened from an interface that is not policed).
 */
export function flowConversion(from: StructLayout, to: StructLayout, samePolicy: boolean): FlowConversion {
  const convert = conversion(from, to);
  const verdictWordAt = fieldOf(to, 'judgement');
  const upgrade = 'last_seen_ns' in from.fields ? fromLayout1(from, to) : undefined;
  return (source, sourceAt, target, targetAt, table) => {
    convert(source, sourceAt, target, targetAt);
    // Set only the active word in `judgement` to 0. No policy in force has this word, so the datapath
    // classifies the next packet of the flow again. If all of `judgement` were 0, the flow would count as
    // foreign, and its replies would pass without a rule.
    if (!samePolicy) target.setUint32(targetAt + verdictWordAt.offset + ACTIVE_WORD, 0, true);
    return upgrade === undefined ? table : upgrade(source, sourceAt, target, targetAt);
  };
}

/**
 * Returns a function that sets the fields that layout version 1 stored in another form. Layout version 1 had
 * one flow table, three states, and times in nanoseconds. It had no hits, so the packets that a flow already
 * had are not counted for a rule.
 */
function fromLayout1(from: StructLayout, to: StructLayout) {
  const was = {
    lastSeen: fieldOf(from, 'last_seen_ns').offset,
    packets: fieldOf(from, 'packets').offset,
    bytes: fieldOf(from, 'bytes').offset,
    state: fieldOf(from, 'state').offset,
    openedByHigh: fieldOf(from, 'opened_by_high').offset,
    fins: fieldOf(from, 'fins').offset,
    protocol: fieldOf(from, 'key.protocol').offset,
  };
  const is = {
    lastSeen: fieldOf(to, 'last_seen').offset,
    state: fieldOf(to, 'state').offset,
    flags: fieldOf(to, 'flags').offset,
    totalPackets: fieldOf(to, 'total_packets').offset,
    totalBytes: fieldOf(to, 'total_bytes').offset,
    foldedPackets: fieldOf(to, 'folded_packets').offset,
    foldedBytes: fieldOf(to, 'folded_bytes').offset,
  };
  return (source: DataView, sourceAt: number, target: DataView, targetAt: number): FlowTable => {
    const fins = source.getUint8(sourceAt + was.fins);
    const protocol = source.getUint8(sourceAt + was.protocol);
    const state = stateOfLayout1(protocol, source.getUint8(sourceAt + was.state), fins);
    const ticks = source.getBigUint64(sourceAt + was.lastSeen, true) / BigInt(TICK_NS);
    target.setUint32(targetAt + is.lastSeen, Number(ticks & 0xffff_ffffn), true);
    target.setUint8(targetAt + is.state, FLOW_STATE[state]);
    const byHigh = source.getUint8(sourceAt + was.openedByHigh) === 0 ? 0 : OPENED_BY_HIGH;
    target.setUint8(targetAt + is.flags, byHigh | (fins * FIN));
    for (const side of [0, 1]) {
      const packets = source.getBigUint64(sourceAt + was.packets + 8 * side, true);
      const bytes = source.getBigUint64(sourceAt + was.bytes + 8 * side, true);
      target.setBigUint64(targetAt + is.totalPackets + 8 * side, packets, true);
      target.setBigUint64(targetAt + is.totalBytes + 8 * side, bytes, true);
      target.setUint32(targetAt + is.foldedPackets + 4 * side, Number(packets & 0xffff_ffffn), true);
      target.setUint32(targetAt + is.foldedBytes + 4 * side, Number(bytes & 0xffff_ffffn), true);
    }
    return HALF_OPEN.has(state) ? 'half_open' : 'flows';
  };
}

const UNREPLIED = 1;
const CLOSING = 3;

function stateOfLayout1(protocol: number, state: number, fins: number): FlowState {
  const opened = state === UNREPLIED;
  switch (protocol) {
    case PROTOCOL.tcp:
      if (opened) return 'tcp_syn_sent';
      if (state === CLOSING) return 'tcp_closing';
      return fins === 0 ? 'tcp_established' : 'tcp_half_closed';
    case PROTOCOL.udp:
    case PROTOCOL.udpLite:
      return opened ? 'udp_opened' : 'udp_replied';
    case PROTOCOL.icmp:
      return opened ? 'icmp_opened' : 'icmp_replied';
    default:
      return opened ? 'other_opened' : 'other_replied';
  }
}

function fieldOf(layout: StructLayout, name: string): Field {
  const field = layout.fields[name];
  if (field === undefined) throw new RangeError(`flows of this layout have no ${name}`);
  return field;
}
