import { u8At, u16At, u32At } from '#arrays/read.js';
import { IPPROTO, PORT_PROTOCOLS, type Verdict } from '#contracts/policy/policy-model.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import { FOLDED, FOLDED_BITS, type SeenCoverage, type SeenFlows, VERDICT_BITS } from './seen-flows.js';

/**
 * A flow that a node has seen. Of a flow that is folded, `dst_ip` is a network. `connections`: how many flows
 * were opened, or how many packets passed without a flow. `denied`: how many packets were denied. Times are
 * in RFC 3339.
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

/** Returns the flow of a row. `format` returns an address as text. */
export function seenFlow(seen: SeenFlows, row: number, format: (address: number) => string): SeenFlow {
  const service = u32At(seen.services, row);
  const isFolded = service >= FOLDED;
  const protocol = (service >>> 16) & 255;
  const hasPort = PORT_PROTOCOLS.includes(protocol) && !isFolded;
  const isIcmp = protocol === IPPROTO.icmp && !isFolded;
  return {
    folded: isFolded,
    src_ip: format(u32At(seen.sources, row)),
    dst_ip: `${format(u32At(seen.destinations, row))}${isFolded ? `/${FOLDED_BITS}` : ''}`,
    hostname: isFolded ? null : (seen.names[u16At(seen.nameLists, row)]?.[0] ?? null),
    proto: protocol,
    dst_port: hasPort ? service & 0xffff : null,
    icmp_type: isIcmp ? (service >>> 8) & 255 : null,
    icmp_code: isIcmp ? service & 255 : null,
    connections: u32At(seen.passed, row),
    denied: u32At(seen.denied, row),
    first_seen: timeText(u32At(seen.first, row)),
    last_seen: timeText(u32At(seen.last, row)),
    last_verdict: verdictOf(u8At(seen.verdicts, row) & VERDICT_BITS) ?? 'allow',
  };
}

export function seenTime({ count, coverage }: { readonly count: number; readonly coverage: SeenCoverage }): SeenTime {
  return {
    since: timeText(coverage.sinceS),
    denied_since: timeText(coverage.deniedSinceS),
    until: timeText(coverage.untilS),
    recorded_minutes: Math.floor(coverage.recordedS / 60),
    recording: coverage.isRecording,
    flows: count,
    folded: coverage.folded,
    events_lost: coverage.lost,
    events_not_recorded: coverage.unrecorded,
  };
}

const timeText = (seconds: number): string => new Date(seconds * 1_000).toISOString();
