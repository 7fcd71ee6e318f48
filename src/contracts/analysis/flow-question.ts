import type { AddressSet, FlowDecider, FlowRegion } from './flow-region.js';

/**
 * The flows that a question is about. A field that is left out asks for every value: "who can reach this" or
 * "what can this reach".
 */
export type FlowQuestion = {
  /** Addresses and networks, or the id of a source group, whose sources and selectors are meant. */
  readonly from?: readonly string[] | { readonly group: string };
  readonly to?: readonly string[];
  /** A DNS name: the destination is an address that is granted for this name, and for no other name. */
  readonly name?: string;
  readonly proto?: string | number;
  readonly ports?: readonly (number | string)[];
  readonly src_ports?: readonly (number | string)[];
  readonly icmp_types?: readonly number[];
};

/**
 * `never`: no flow passes under any condition. `always`: every flow passes under every condition. An answer
 * that is not complete is `sometimes`, unless all sources were compared for the other answer.
 */
export type FlowAnswer = 'never' | 'always' | 'sometimes';

/** Flows that one rule or default decides. */
export type DecidedRegion = FlowRegion & { readonly decider: FlowDecider };

/**
 * The smallest change that lets the denied flows of an obstacle pass: a rule that is inserted into a group
 * before another rule; at the end of the group if `before` is null. `source_group` is null if no group
 * contains the sources, so that a group must be added.
 */
export type Remedy = {
  readonly source_group: string | null;
  readonly before: string | null;
  readonly rule: Readonly<Record<string, unknown>>;
};

/** The rule or default that denies flows. `remedy` is null if the question names no destination. */
export type Obstacle = { readonly decider: FlowDecider; readonly flows: string; readonly remedy: Remedy | null };

export type AskAnswer = {
  readonly answer: FlowAnswer;
  readonly summary: string;
  readonly complete: boolean;
  readonly left: FlowRegion['sources'] | null;
  /**
   * The number of flows that pass, and of flows that are denied; a flow that passes under a condition counts
   * in both.
   */
  readonly flows: { readonly passing: string; readonly denied: string };
  readonly passing: readonly DecidedRegion[];
  readonly passing_omitted: number;
  /** All sources with flows that pass; null if none pass. */
  readonly passing_sources: AddressSet | null;
  readonly denied: readonly DecidedRegion[];
  readonly denied_omitted: number;
  readonly obstacles: readonly Obstacle[];
};
