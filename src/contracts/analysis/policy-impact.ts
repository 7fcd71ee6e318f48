import type { DiffCause, DiffEffect } from './diff-effect.js';
import type { FlowDecider } from './flow-region.js';
import type { SeenFlow, SeenTime } from './seen-flow.js';

/**
 * The number of flows with an effect. `connections`: how often these flows passed; for flows that the change
 * opens, how often they were denied.
 */
export type ImpactCount = { readonly flows: number; readonly connections: number };

/**
 * A seen flow that a change affects. `depends`: facts that are not recorded decide whether the change affects
 * it, such as TLS, a selector or a source port.
 */
export type ImpactFlow = SeenFlow & {
  readonly effect: DiffEffect;
  readonly depends: boolean;
  readonly before: FlowDecider & { readonly inspected: boolean };
  readonly after: FlowDecider & { readonly inspected: boolean };
  readonly cause: DiffCause | null;
};

/** The effects of a policy change on the flows that a node has recorded. */
export type PolicyImpact = {
  /** The node that has seen the flows. */
  readonly node: string;
  /** One sentence. */
  readonly summary: string;
  readonly coverage: SeenTime;
  /**
   * For each effect, the number of flows that certainly have it. `depends`: the number of flows that may have
   * it, because it depends on facts that were not recorded.
   */
  readonly effects: Readonly<Record<DiffEffect, ImpactCount & { readonly depends: ImpactCount }>>;
  /** Closed flows come first. */
  readonly flows: readonly ImpactFlow[];
  readonly flows_omitted: number;
};
