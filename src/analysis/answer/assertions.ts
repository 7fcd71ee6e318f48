import type { z } from 'zod';
import { type AddressSpace, everythingIn, type Point, type Span, spansOf } from '#analysis/engine/address-space.js';
import { type Compared, compare } from '#analysis/engine/comparison.js';
import { DeciderFinder } from '#analysis/engine/decider.js';
import { type Change, passes } from '#analysis/engine/decision-lists.js';
import { addressText } from '#contracts/analysis/address-text.js';
import type { Assertion, AssertionResult, FormerPolicy } from '#contracts/analysis/assertion.js';
import type { DecidedRegion, FlowQuestion } from '#contracts/analysis/flow-question.js';
import type { Group, Policy } from '#contracts/policy/policy-model.js';
import { type AskOptions, deciderText, flowsThat, formatted, type Part } from './ask.js';
import { type AssertionProblem, readAssertions, statementOf } from './assertion-document.js';
import { deciderName } from './decider-name.js';
import { exampleOf } from './example-flow.js';
import { flowCount } from './flow-region.js';
import { inTurn } from './in-turn.js';
import { askedGroup, groupNamed, type ReadQuestion, readQuestion } from './question.js';
import { serviceText } from './service-set.js';
import { unregioned } from './unregioned.js';

/**
 * Options of a check. `formerOf`: returns the earlier policy with which an assertion `opens_nothing_since`
 * compares; null if there is none.
 */
export type JudgeOptions = AskOptions & { readonly formerOf: (assertion: Assertion) => Policy | null };

/**
 * Checks all assertions of a document. Returns the problems of a document that is not valid, or, without
 * `mayLackGroups`, that names source groups that the policy does not have.
 */
export function checkAssertions(
  policy: Policy,
  document: unknown,
  schema: z.ZodType,
  options: JudgeOptions & { readonly mayLackGroups: boolean },
): readonly AssertionResult[] | { readonly problems: readonly AssertionProblem[] } {
  const read = readAssertions(document, schema, options.spaces);
  if ('problems' in read) return read;
  const problems = read.flatMap((assertion, at) => {
    const statement = statementOf(assertion);
    const group = statement.kind === 'opens_nothing_since' ? null : askedGroup(statement.asked);
    if (group === null || options.mayLackGroups || groupNamed(policy, group) !== null) return [];
    const message = 'The policy has no source group with this id.';
    return [{ pointer: `/assertions/${at}/${statement.kind}/from/group`, code: 'invalid_value' as const, message }];
  });
  return problems.length > 0 ? { problems } : read.map((assertion) => judged(assertion, policy, options));
}

/** Returns whether an assertion holds for a policy. */
export function judged(assertion: Assertion, policy: Policy, options: JudgeOptions): AssertionResult {
  const { id, judge } = assertion;
  const as = (of: Policy): Policy => (judge === 'enforced' ? enforced(of) : of);
  const statement = statementOf(assertion);
  if (statement.kind === 'opens_nothing_since') {
    const former = options.formerOf(assertion);
    if (former === null) return unregioned(id, 'unknown', `${formerText(statement.former)} is not in the history`);
    return resultOf(id, opened(as(former), as(policy), statement.former, options), options);
  }
  const { kind, asked } = statement;
  const read = readQuestion(asked, policy, options.spaces);
  if (!('questions' in read)) {
    const group = askedGroup(asked);
    const isMissing = group !== null && groupNamed(policy, group) === null;
    // A list can have an assertion about IPv6 from a time when the node enforced IPv6 policies.
    const reason = isMissing ? `the policy has no source group ${group}` : (read[0]?.message ?? 'it is not valid');
    return unregioned(id, 'broken', reason);
  }
  const question = kind === 'only' ? fromOthers(asked, read, policy) : read;
  const wanted = kind === 'always' ? 'are_denied' : 'pass';
  const { parts, compared } = flowsThat(wanted, as(policy), question, options);
  const verb = kind === 'always' ? 'denies' : 'passes';
  return resultOf(id, { parts, compared, verb, end: '', regionOf: (part) => formatted(part, compared) }, options);
}

/** Returns the former policy of an assertion in words. */
function formerText(former: FormerPolicy): string {
  if ('file' in former) return former.file;
  return `revision ${former.revision} of ${former.policy ?? 'the policy in force'}`;
}

/** The flows that contradict an assertion. `end`: the end of the sentence about them. */
type Contradiction<P extends { readonly flows: bigint }> = {
  readonly parts: readonly P[];
  readonly compared: Compared;
  readonly verb: 'passes' | 'denies';
  readonly end: string;
  readonly regionOf: (part: P) => DecidedRegion;
};

function resultOf<P extends { readonly flows: bigint }>(
  id: string,
  { parts, compared, verb, end, regionOf }: Contradiction<P>,
  { limit }: JudgeOptions,
): AssertionResult {
  const result = parts.length > 0 ? 'broken' : compared.left.length > 0 ? 'unknown' : 'holds';
  if (result === 'holds') return unregioned(id, result, 'the assertion holds');
  const [largest] = parts;
  if (largest === undefined)
    return unregioned(id, result, 'the limit of steps was reached, so the assertion could not be checked');
  const regions = parts.slice(0, limit).map(regionOf);
  return {
    id,
    result,
    message: messageOf(regions[0] ?? regionOf(largest), verb, parts.length - 1) + end,
    regions,
    regions_omitted: parts.length - regions.length,
  };
}

function messageOf(first: DecidedRegion, verb: string, others: number): string {
  const { sources, destinations, services, conditions, decider } = first;
  const flows = `${addressText(sources)} → ${addressText(destinations)} ${serviceText(services)}`;
  const when = conditions.length === 0 ? '' : ' under conditions';
  const more = others === 0 ? '' : `, and ${others} more ${others === 1 ? 'region' : 'regions'}`;
  return `${deciderText(decider)} ${verb} ${flows}${when}${more}`;
}

type Opened = Pick<Part, 'region' | 'change' | 'flows'>;

/** Returns the flows that pass, and that a former policy denied. */
function opened(former: Policy, policy: Policy, named: FormerPolicy, options: JudgeOptions): Contradiction<Opened> {
  const { spaces, steps } = options;
  const compared = compare(former, policy, { spaces, steps });
  const { conditions } = compared;
  const parts = compared.regions.flatMap((region) => {
    const flows = flowCount(region);
    return region.changes.filter(opens).map((change) => ({ region, change, flows }));
  });
  const finders = new Map<AddressSpace, DeciderFinder>();
  const deciderFor = ({ region, change }: Opened) => {
    const finder = finders.get(region.space) ?? new DeciderFinder(policy, region.space, conditions);
    finders.set(region.space, finder);
    const holding = conditions.closure(conditions.atomsOf(change.condition)) ?? new Set();
    const { inspected: _, ...decider } = deciderName(finder.decide(exampleOf(region), holding));
    return decider;
  };
  parts.sort((one, other) => (one.flows < other.flows ? 1 : -1));
  return {
    parts: inTurn(parts, spaces, ({ region }) => region.space),
    compared,
    verb: 'passes',
    end: `; ${formerText(named)} denied them`,
    regionOf: (part) => formatted({ ...part, decider: deciderFor(part) }, compared),
  };
}

const opens = ({ attribute, from, to }: Change): boolean =>
  attribute === 'verdict' && !passes(from.outcome) && passes(to.outcome);

/** The groups with the mode `enforce`, by the group with its own mode. */
const enforcedGroups = new WeakMap<Group, Group>();

/** Returns the policy with the mode enforce everywhere. */
function enforced(policy: Policy): Policy {
  return { groups: policy.groups.map(enforcedGroup), default: { ...policy.default, mode: 'enforce' } };
}

function enforcedGroup(group: Group): Group {
  const known = enforcedGroups.get(group);
  if (known !== undefined) return known;
  const isEnforced = group.rules.every(({ mode }) => mode === 'enforce');
  // The same list of rules, because the engine keeps what it has found out about a list.
  const rules = isEnforced ? group.rules : group.rules.map((rule) => ({ ...rule, mode: 'enforce' as const }));
  const made: Group = { ...group, mode: 'enforce', rules };
  enforcedGroups.set(group, made);
  return made;
}

/** Returns the question about all sources that are not in `from`, and that its selectors do not select. */
export function fromOthers(asked: FlowQuestion, read: ReadQuestion, policy: Policy): ReadQuestion {
  const named = askedGroup(asked);
  const group = named === null ? null : groupNamed(policy, named);
  const selectors = new Set(group?.selectors.map(({ key }) => key));
  const questions = new Map(
    [...read.questions].map(([space, question]) => {
      const own = group === null ? (question.sources ?? []) : spansOf(group.sources, space);
      return [space, { ...question, sources: othersThan(own, space) }];
    }),
  );
  return {
    questions,
    known: (atom) => (atom.kind === 'selected' && selectors.has(atom.key) ? false : read.known(atom)),
  };
}

/** Returns all addresses of a family that are not in ascending spans. */
function othersThan(spans: readonly Span[], space: AddressSpace): readonly Span[] {
  const everything = everythingIn(space);
  const others: Span[] = [];
  let from: Point = everything.start;
  for (const { start, end } of spans) {
    if (from < start) others.push({ start: from, end: start });
    from = end;
  }
  if (from < everything.end) others.push({ start: from, end: everything.end });
  return others;
}
