import type { Finding, FindingDelta, FindingType } from './finding.js';
import { isWithin, type Network } from './network-filter.js';

/**
 * Values of one field are alternatives (OR), fields are combined with AND. An empty list matches everything.
 */
export type FindingFilter = {
  readonly types: readonly FindingType[];
  readonly policyIds: readonly string[];
  readonly sourceGroups: readonly string[];
  readonly rules: readonly string[];
  readonly sources: readonly Network[];
  readonly destinations: readonly Network[];
  /** Bounds on the time when the finding was last seen, in milliseconds since 1970. Both are inclusive. */
  readonly sinceMs: number | null;
  readonly untilMs: number | null;
};

export type FindingQuery = {
  readonly filter: FindingFilter;
  /** The maximum number of findings of a page. */
  readonly limit: number;
  /** The `next` of the previous page. Null for the first page. */
  readonly cursor: string | null;
};

/**
 * Findings, newest first; equal times are ordered by id. A page may be short or empty although more follow:
 * one request examines a few thousand findings at most. A finding that is seen again during a walk moves to
 * the front, and the walk does not meet it again.
 */
export type FindingPage = {
  readonly items: readonly Finding[];
  /** Null if nothing follows this page. */
  readonly next: string | null;
};

/** Returns whether a finding matches the filter. Does not compare the time. */
export function fits(filter: FindingFilter, finding: FindingDelta): boolean {
  return (
    oneOf(filter.types, finding.type) &&
    oneOf(filter.policyIds, finding.policyId) &&
    oneOf(filter.sourceGroups, finding.sourceGroup) &&
    oneOf(filter.rules, finding.rule) &&
    inOne(filter.sources, finding.source) &&
    inOne(filter.destinations, finding.destination)
  );
}

function oneOf(wanted: readonly string[], value: string | null): boolean {
  return wanted.length === 0 || (value !== null && wanted.includes(value));
}

function inOne(wanted: readonly Network[], address: string | null): boolean {
  return wanted.length === 0 || (address !== null && wanted.some((network) => isWithin(network, address)));
}
