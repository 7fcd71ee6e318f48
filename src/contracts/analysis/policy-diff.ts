import type { DiffCause, DiffEffect } from './diff-effect.js';
import type { FlowCondition, FlowDecider, FlowRegion } from './flow-region.js';
import type { PolicyImpact } from './policy-impact.js';

/**
 * The whole result. `neither`: no flow opens or closes, but some change otherwise. `equal`: every flow is
 * decided alike.
 */
export type DiffVerdict = 'equal' | 'opens' | 'closes' | 'both' | 'neither';

export type DiffRegion = FlowRegion & {
  readonly effect: DiffEffect;
  readonly before: FlowDecider & { readonly inspected: boolean };
  readonly after: FlowDecider & { readonly inspected: boolean };
  readonly cause: DiffCause | null;
};

/** How many flows of each effect one cause has; decimal texts. */
export type CauseCount = DiffCause & {
  readonly opens: string;
  readonly closes: string;
  readonly others: string;
  readonly regions: number;
};

/**
 * A question that operators often ask about a change. `opened_to_any_source`, `opened_to_any_destination`: a
 * region (set of flows) opens to every address. `other_group`: flows that a group decides that was not
 * edited. `opened_by_name`: a region opens for addresses that are granted for a name, which other names can
 * share. `unreachable_rule`: a rule decided flows or lookups before and decides none after, or a new rule
 * decides none. A limited number of rules is looked at.
 */
export type DiffNotice = {
  readonly code:
    | 'opened_to_any_source'
    | 'opened_to_any_destination'
    | 'other_group'
    | 'opened_by_name'
    | 'unreachable_rule';
  readonly text: string;
};

/** The names that sources may look up, as far as the change affects them (D11). */
export type LookupChange = {
  readonly effect: 'opens' | 'closes' | 'audit';
  readonly sources: FlowRegion['sources'];
  /** The pattern of the names; `*` for all names that no other pattern decides. */
  readonly names: string;
  readonly conditions: readonly FlowCondition[];
  readonly before: Pick<FlowDecider, 'decision' | 'mode'>;
  readonly after: Pick<FlowDecider, 'decision' | 'mode'>;
};

export type PolicyDiff = {
  readonly verdict: DiffVerdict;
  /** One sentence. */
  readonly summary: string;
  /** False if the limit of steps was reached; `left` then has the sources that were not compared. */
  readonly complete: boolean;
  readonly left: FlowRegion['sources'] | null;
  /** The number of flows of each effect, in all regions (sets of flows). */
  readonly flows: Readonly<Record<DiffEffect, string>>;
  readonly notices: readonly DiffNotice[];
  readonly causes: readonly CauseCount[];
  readonly causes_omitted: number;
  readonly regions: readonly DiffRegion[];
  readonly regions_omitted: number;
  /** The number of flows in the regions (sets of flows) that are not listed. */
  readonly flows_omitted: string;
  readonly lookups: readonly LookupChange[];
  readonly lookups_omitted: number;
  /** The seen flows that the change affects; null if they cannot be read. */
  readonly impact: PolicyImpact | null;
  /** Why `impact` is null, as a sentence; otherwise null. */
  readonly impact_unavailable: string | null;
};
