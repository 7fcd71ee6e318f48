import { type AddressSpace, overlap } from '#analysis/engine/address-space.js';
import { type Compared, compare, type Region } from '#analysis/engine/comparison.js';
import { passes } from '#analysis/engine/decision-lists.js';
import type { ValueSet } from '#analysis/engine/pieces.js';
import type { Question } from '#analysis/engine/relevant-rules.js';
import { samePrefixes } from '#analysis/engine/same-rule.js';
import { itemAt } from '#arrays/read.js';
import type { Assertion, AssertionResult, CheckedAssertion } from '#contracts/analysis/assertion.js';
import type { Policy, Range } from '#contracts/policy/policy-model.js';
import type { AskOptions } from './ask.js';
import { statementOf } from './assertion-document.js';
import { fromOthers, type JudgeOptions, judged } from './assertions.js';
import { askedGroup, groupNamed, readQuestion } from './question.js';
import { unregioned } from './unregioned.js';

export type CheckOptions = JudgeOptions & {
  /** Whether the time for the check is over. */
  readonly isOver: () => boolean;
};

/**
 * Returns the assertions whose result a change of a policy can change: those about a flow that the change
 * decides otherwise, or about a source group with other sources. All other assertions keep their result.
 */
export function affectedAssertions(
  before: Policy,
  after: Policy,
  assertions: readonly Assertion[],
  { spaces, steps }: Omit<AskOptions, 'limit'>,
): readonly Assertion[] {
  const compared = compare(before, after, { spaces, steps });
  const changed = new ChangedFlows(compared);
  return assertions.filter((assertion) => {
    const statement = statementOf(assertion);
    if (statement.kind === 'opens_nothing_since')
      return compared.left.length > 0 || changed.opens(assertion.judge === 'enforced');
    const { kind, asked } = statement;
    if (hasOtherSources(askedGroup(asked), before, after)) return true;
    const read = readQuestion(asked, after, spaces);
    // Without its source group, or about IPv6 on a node that enforces no IPv6 policies, it is broken.
    if (!('questions' in read)) return true;
    const { questions } = kind === 'only' ? fromOthers(asked, read, after) : read;
    return [...questions].some(([space, question]) => changed.touches(space, question));
  });
}

/**
 * Checks assertions for a policy. Returns those that do not hold, with their result for the policy before.
 * An assertion for which there is no time left is `unknown`.
 */
export function checkChange(
  before: Policy,
  after: Policy,
  assertions: readonly Assertion[],
  options: CheckOptions,
): readonly CheckedAssertion[] {
  const found: AssertionResult[] = [];
  for (const assertion of assertions) {
    const result = options.isOver()
      ? unregioned(assertion.id, 'unknown', 'the assertion could not be checked in time')
      : judged(assertion, after, options);
    if (result.result !== 'holds') found.push(result);
  }
  const byId = new Map(assertions.map((assertion) => [assertion.id, assertion]));
  return found.map((result) => {
    const assertion = byId.get(result.id);
    if (assertion === undefined || options.isOver()) return { ...result, before: null };
    return { ...result, before: judged(assertion, before, options).result };
  });
}

/** Whether the source group that a question names selects other sources after a change. */
function hasOtherSources(name: string | null, before: Policy, after: Policy): boolean {
  if (name === null) return false;
  const [one, other] = [groupNamed(before, name), groupNamed(after, name)];
  if (one === null || other === null) return one !== other;
  const [keys, otherKeys] = [one, other].map(({ selectors }) => selectors.map(({ key }) => key));
  return !samePrefixes(one.sources, other.sources) || JSON.stringify(keys) !== JSON.stringify(otherKeys);
}

/** The flows that a change decides otherwise. */
class ChangedFlows {
  readonly #regions: readonly Region[];

  constructor(private readonly compared: Compared) {
    this.#regions = compared.regions.filter(({ changes }) => changes.some(({ attribute }) => attribute === 'verdict'));
  }

  /** `isEnforced`: whether an audited deny counts as a deny. */
  opens(isEnforced: boolean): boolean {
    const pass = (outcome: Parameters<typeof passes>[0]) => passes(outcome) && !(isEnforced && outcome === 'audit');
    return this.#regions.some(({ changes }) =>
      changes.some(({ attribute, from, to }) => attribute === 'verdict' && !pass(from.outcome) && pass(to.outcome)),
    );
  }

  /** Whether the change decides a flow of a question about one family otherwise, or may do so. */
  touches(space: AddressSpace, { sources = null, destinations = null, keys, sourcePorts = null }: Question): boolean {
    const left = this.compared.left.find((one) => one.space === space);
    if (left !== undefined && (sources === null || overlap(left.spans, sources))) return true;
    return this.#regions.some(
      (region) =>
        region.space === space &&
        (destinations === null || overlap(region.destinations, destinations)) &&
        (keys === undefined || haveCommon(region.keys, keys)) &&
        (sourcePorts === null || haveCommon(region.sourcePorts, sourcePorts)) &&
        (sources === null || overlap(region.sources, sources)),
    );
  }
}

/** Whether a set of values and ranges have a value in common. */
function haveCommon(set: ValueSet, ranges: readonly Range[]): boolean {
  for (let at = 0; at < set.length; at += 2) {
    const [from, end] = [itemAt(set, at), itemAt(set, at + 1)];
    if (ranges.some(({ low, high }) => low < end && from <= high)) return true;
  }
  return false;
}
