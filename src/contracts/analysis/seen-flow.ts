import { u8At, u16At, u32At } from '#arrays/read.js';
import { ADDRESS_WORDS, addressAt } from '#contracts/policy/address-words.js';
import { type Address, type Family, ICMP, PORT_PROTOCOLS, type Verdict } from '#contracts/policy/policy-model.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import { FOLDED_DESTINATION, isFolded, lengthsOf, type SeenFlows, VERDICT_BITS } from './seen-flows.js';

/**
 * A flow that a node has recorded. In a record that combines several flows (folded), `src_ip` or `dst_ip` is
 * a network. `connections`: how many flows were opened, or how many packets passed without a flow. `denied`:
 * how many packets were denied. Times are in RFC 3339.
 */
export type SeenFlow = {
  readonly folded: boolean;
  readonly src_ip: string;
  readonly dst_ip: string;
  /** The name for which the destination was last granted; null if there is none. */
  readonly hostname: string | null;
  readonly proto: number;
  readonly dst_port: number | null;
  readonly icmp_type: number | null;
  readonly icmp_code: number | null;
  readonly connections: number;
  readonly denied: number;
  readonly first_seen: string;
  readonly last_seen: string;
  readonly last_verdict: Verdict;
};

/**
 * The time that the recorded flows cover. Times are in RFC 3339. `since`: all flows that passed since then,
 * while the node recorded, are known. `denied_since`: the same for flows that were only denied.
 */
export type SeenTime = {
  readonly since: string;
  readonly denied_since: string;
  readonly until: string;
  readonly recorded_minutes: number;
  /** Whether the node records flows now: performance mode is enabled. */
  readonly recording: boolean;
  /** The number of recorded flows, and how many of them stand for several flows. */
  readonly flows: number;
  readonly folded: number;
  readonly events_lost: number;
  readonly events_not_recorded: number;
};

/** Returns the flow of a row of the table of a family. `format` returns an address as text. */
export function seenFlow(seen: SeenFlows, family: Family, row: number, format: (address: Address) => string): SeenFlow {
  const rows = seen[family];
  const service = u32At(rows.services, row);
  const lengths = lengthsOf(service, family);
  const words = ADDRESS_WORDS[family];
  const textOf = (column: Uint32Array, length: number): string => {
    const address = format(addressAt(column, row * words, family));
    return length === words * 32 ? address : `${address}/${length}`;
  };
  const protocol = (service >>> 16) & 255;
  const hasNetwork = service >= FOLDED_DESTINATION;
  const hasPort = PORT_PROTOCOLS.includes(protocol) && !hasNetwork;
  const isIcmp = protocol === ICMP[family] && !hasNetwork;
  return {
    folded: isFolded(service),
    src_ip: textOf(rows.sources, lengths.source),
    dst_ip: textOf(rows.destinations, lengths.destination),
    hostname: hasNetwork ? null : (seen.names[u16At(rows.nameLists, row)]?.[0] ?? null),
    proto: protocol,
    dst_port: hasPort ? service & 0xffff : null,
    icmp_type: isIcmp ? (service >>> 8) & 255 : null,
    icmp_code: isIcmp ? service & 255 : null,
    connections: u32At(rows.passed, row),
    denied: u32At(rows.denied, row),
    first_seen: timeText(u32At(rows.first, row)),
    last_seen: timeText(u32At(rows.last, row)),
    last_verdict: verdictOf(u8At(rows.verdicts, row) & VERDICT_BITS) ?? 'allow',
  };
}

export function seenTime({ ipv4, ipv6, coverage }: SeenFlows): SeenTime {
  return {
    since: timeText(coverage.sinceS),
    denied_since: timeText(coverage.deniedSinceS),
    until: timeText(coverage.untilS),
    recorded_minutes: Math.floor(coverage.recordedS / 60),
    recording: coverage.isRecording,
    flows: ipv4.count + ipv6.count,
    folded: coverage.folded,
    events_lost: coverage.lost,
    events_not_recorded: coverage.unrecorded,
  };
}

const timeText = (seconds: number): string => new Date(seconds * 1_000).toISOString();
