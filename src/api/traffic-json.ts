import type { Refusal } from '#bus/policy-requests.js';
import type { Prefix, Range } from '#contracts/policy-model.js';
import type { PolicyRecord } from '#contracts/policy-record.js';
import type { Decider } from '#contracts/rule-names.js';

/** Queries about filtered traffic. They return a `Refusal` while no dataplane filters. */
export type Traffic = {
  hits(query: HitQuery): Promise<HitReport | Refusal>;
  flows(query: FlowQuery): Promise<FlowPage | Refusal>;
  /** Removes flows from the flow table, so that their next packets are evaluated like those of new flows. */
  cutFlows(filter: FlowFilter): Promise<{ readonly cut: number } | Refusal>;
};

type HitQuery = {
  readonly groups: readonly string[];
  readonly rules: readonly string[];
  readonly unused: boolean | undefined;
  readonly from: number;
  readonly limit: number;
};
type HitReport = {
  readonly policy: Pick<PolicyRecord, 'id' | 'revision'> | null;
  readonly generation: number;
  readonly sinceMs: number;
  readonly items: readonly Hit[];
  readonly next: number | null;
};
/** Times are milliseconds since 1970. */
export type Hit = {
  readonly decider: Decider;
  readonly packets: bigint;
  readonly bytes: bigint;
  /** Null if the rule was never hit. */
  readonly lastMs: number | null;
  /** The start of counting for a rule that was never hit; null for others. */
  readonly unusedSinceMs: number | null;
};

export const FLOW_VERDICTS = ['allow', 'audit', 'redirect'] as const;
export const FLOW_STATES = [
  'tcp_syn_sent',
  'tcp_syn_received',
  'tcp_established',
  'tcp_half_closed',
  'tcp_closing',
  'tcp_reset',
  'udp_opened',
  'udp_replied',
  'icmp_opened',
  'icmp_replied',
  'other_opened',
  'other_replied',
] as const;

/** Values of one list are combined with OR, lists with AND. An empty list matches everything. */
export type FlowFilter = {
  readonly sources: readonly Prefix[];
  readonly destinations: readonly Prefix[];
  readonly ports: readonly Range[];
  readonly sourcePorts: readonly Range[];
  readonly destinationPorts: readonly Range[];
  readonly protocols: readonly number[];
  readonly groups: readonly string[];
  readonly rules: readonly string[];
  readonly verdicts: readonly (typeof FLOW_VERDICTS)[number][];
  readonly states: readonly (typeof FLOW_STATES)[number][];
  readonly foreign: boolean | undefined;
  readonly current: boolean | undefined;
  readonly minBytes: number;
};
type FlowQuery = { readonly filter: FlowFilter; readonly after: Uint8Array | null; readonly limit: number };
type FlowPage = { readonly matched: number; readonly items: readonly LiveFlow[]; readonly next: Uint8Array | null };
/** Source is the side that opened the flow, and comes first in pairs. Times are milliseconds since 1970. */
export type LiveFlow = {
  readonly source: number;
  readonly destination: number;
  readonly protocol: number;
  readonly ports: readonly [number, number] | null;
  readonly icmpId: number | null;
  readonly state: (typeof FLOW_STATES)[number];
  readonly verdict: (typeof FLOW_VERDICTS)[number] | null;
  /** Null if no rule was evaluated, or if the policy with the rule is no longer known. */
  readonly decider: Decider | null;
  readonly foreign: boolean;
  readonly generation: number | null;
  readonly current: boolean;
  readonly packets: readonly [bigint, bigint];
  readonly bytes: readonly [bigint, bigint];
  readonly openedMs: number;
  readonly lastSeenMs: number;
  readonly expiresInMs: number;
  readonly interfaces: readonly [string | null, string | null];
};
