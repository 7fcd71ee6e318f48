import type { Prefix } from '#contracts/policy/policy-model.js';
import type { Finding, FindingType } from './finding.js';
import { isWithin } from './network-filter.js';

/**
 * A filter of findings. A finding matches if every field of the filter matches. A list matches if it is empty
 * or contains the finding's value.
 */
export type FindingFilter = {
  readonly ids: readonly string[];
  readonly types: readonly FindingType[];
  readonly policyIds: readonly string[];
  readonly sourceGroups: readonly string[];
  readonly rules: readonly string[];
  readonly sources: readonly Prefix[];
  readonly destinations: readonly Prefix[];
  /**
   * Inclusive bounds on the time when a finding was last seen, in milliseconds since 1970. Null sets no
   * bound.
   */
  readonly sinceMs: number | null;
  readonly untilMs: number | null;
};

/** A filter without conditions: it matches every finding. */
export const EVERY_FINDING: FindingFilter = {
  ids: [],
  types: [],
  policyIds: [],
  sourceGroups: [],
  rules: [],
  sources: [],
  destinations: [],
  sinceMs: null,
  untilMs: null,
};

export type FindingQuery = {
  readonly filter: FindingFilter;
  /** The maximum number of findings in the page. */
  readonly limit: number;
  /** The value `next` of the previous page, or null for the first page. */
  readonly cursor: string | null;
};

/**
 * A page of findings, newest first; findings of the same millisecond are ordered by id. One query examines
 * about a thousand findings at most, so a page may be empty although more findings follow. If an event
 * updates a finding during a walk through the pages, the finding moves to the front, and the walk may miss
 * the finding.
 */
export type FindingPage = {
  readonly items: readonly Finding[];
  /** The cursor for the next page. Null if this page is the last. */
  readonly next: string | null;
};

/**
 * Returns whether a finding matches the lists of the filter. Ignores the time bounds, because the walk over
 * the index already applies them.
 */
export function fits(filter: FindingFilter, finding: Finding): boolean {
  return (
    oneOf(filter.ids, finding.id) &&
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

function inOne(wanted: readonly Prefix[], address: string | null): boolean {
  return wanted.length === 0 || (address !== null && wanted.some((network) => isWithin(network, address)));
}
