import type { Finding, FindingDelta, FindingType } from './finding.js';
import { isWithin, type Network } from './network-filter.js';

/** Values of one field are alternatives, fields must all fit; an empty list asks for nothing. */
export type FindingFilter = {
  readonly types: readonly FindingType[];
  readonly policyIds: readonly string[];
  readonly sourceGroups: readonly string[];
  readonly rules: readonly string[];
  readonly sources: readonly Network[];
  readonly destinations: readonly Network[];
  /** Of the time that it was seen last, in milliseconds since 1970; both are included. */
  readonly sinceMs: number | null;
  readonly untilMs: number | null;
};

export type FindingQuery = {
  readonly filter: FindingFilter;
  /** How many findings a page has at most. */
  readonly limit: number;
  /** `next` of the page before; null for the first. */
  readonly cursor: string | null;
};

/**
 * Newest first, equal times by id. Such a page may be short, or empty, with others behind it: a question looks at a few
 * thousand findings at a time. What is seen again during a walk moves to the front, and is not met behind the cursor.
 */
export type FindingPage = {
  readonly items: readonly Finding[];
  /** Null where nothing is behind this page. */
  readonly next: string | null;
};

/** Whether a finding fits, its time apart. */
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
