import type { Verdict } from '#contracts/policy/policy-model.js';
import type { DiffCause, DiffEffect } from './diff-effect.js';
import type { FlowDecider } from './flow-region.js';

/**
 * `connections`: how often these flows were seen: flows that were opened, or packets that were denied or
 * passed without a flow.
 */
export type ImpactCount = { readonly flows: number; readonly connections: number };

/**
 * The time that the recorded flows cover. Times are in RFC 3339. `since`: all flows that passed since then,
 * while the node recorded, were looked at. `denied_since`: the same for flows that were only denied.
 */
type ImpactCoverage = {
  readonly since: string;
  readonly denied_since: string;
  readonly until: string;
  readonly recorded_minutes: number;
  /** Whether the node records flows now: performance mode is enabled. */
  readonly recording: boolean;
  /** The number of flows that were looked at, and how many of them stand for several flows. */
  readonly flows: number;
  readonly folded: number;
  readonly events_lost: number;
  readonly events_not_recorded: number;
};

/**
 * A seen flow that a change affects. `depends`: facts that are not recorded decide whether the change affects
 * it, such as TLS, a selector or a source port. Of a flow that is folded, `dst_ip` is a network.
 */
export type ImpactFlow = {
  readonly effect: DiffEffect;
  readonly depends: boolean;
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
  readonly first_seen: string;
  readonly last_seen: string;
  readonly last_verdict: Verdict;
  readonly before: FlowDecider & { readonly inspected: boolean };
  readonly after: FlowDecider & { readonly inspected: boolean };
  readonly cause: DiffCause | null;
};

/** Which of the flows that a node has seen a change affects. */
export type PolicyImpact = {
  /** The node that has seen the flows. */
  readonly node: string;
  /** One sentence. */
  readonly summary: string;
  readonly coverage: ImpactCoverage;
  /** For each effect the flows that have it, and those that have it under facts that are not recorded. */
  readonly effects: Readonly<Record<DiffEffect, ImpactCount & { readonly depends: ImpactCount }>>;
  /** Closed flows come first. */
  readonly flows: readonly ImpactFlow[];
  readonly flows_omitted: number;
};
