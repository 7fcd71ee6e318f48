import { formatPrefix, parseCidr } from '#addresses/ip-address.js';
import { type AddressSpace, spansIn } from '#analysis/engine/address-space.js';
import { takesPartInLookups } from '#analysis/engine/lookup-comparison.js';
import { ruleKey } from '#analysis/engine/same-rule.js';
import { itemAt } from '#arrays/read.js';
import type { MergedMatchers } from '#contracts/analysis/policy-lint.js';
import type { PortSpec } from '#contracts/policy/policy-document.js';
import type { Range, Rule } from '#contracts/policy/policy-model.js';
import { mergedRanges } from '#policy/model/intervals.js';
import { hasEveryDestination } from '#policy/model/rules/rule-coverage.js';
import { Arrangement } from './arrangement.js';
import type { GroupAtWork, LintContext } from './lint-context.js';

const FIELDS = ['destinations', 'destinationPorts', 'sourcePorts', 'icmpTypes', 'icmpCodes'] as const;
type Field = (typeof FIELDS)[number];

/** Rules that can be one rule: the first of them with the merged matchers, in its place. */
export type Mergeable = {
  readonly group: number;
  readonly rules: readonly number[];
  readonly merged: Rule;
  readonly match: MergedMatchers;
};

/** The maximum number of rules of one finding. */
const MERGED = 16;

/**
 * Finds rules of one group that differ only in one list of matchers, so that one rule can replace them. Each
 * finding can be applied alone. The first `limit` findings can also be applied together with the removals in
 * `proposed`.
 */
export function mergeableRules(
  context: LintContext,
  unreachable: ReadonlySet<number>,
  proposed: Arrangement,
  limit: number,
): Mergeable[] {
  const all: Mergeable[] = [];
  let current = proposed;
  context.eachGroup('mergeable', 'all', (at) => {
    const taken = new Set<number>();
    for (const field of FIELDS) {
      const numbers = context.rules
        .numbersOf(at.group)
        .filter((number) => !unreachable.has(number) && !current.removed.has(number));
      for (const alike of alikeBut(field, numbers, context)) {
        const free = alike.filter((number) => !taken.has(number));
        for (let first = 0; first < free.length - 1; first++) {
          if (taken.has(itemAt(free, first))) continue;
          const merge = mergeFrom(free.slice(first), at, field, context, current);
          if (merge === null) continue;
          for (const number of merge.found.rules) taken.add(number);
          if (all.length < limit) current = merge.after;
          all.push(merge.found);
        }
      }
    }
  });
  return all;
}

/** Merges the first of these rules with others of them. Returns null if it can be merged with none. */
function mergeFrom(
  numbers: readonly number[],
  at: GroupAtWork,
  field: Field,
  { rules, spaces }: LintContext,
  current: Arrangement,
): { readonly found: Mergeable; readonly after: Arrangement } | null {
  const base = itemAt(numbers, 0);
  const own: number[] = [base];
  let merged = rules.ruleOf(base);
  // The merged rule decides as its parts do, if each part stands directly behind the first of them.
  let alone = Arrangement.original;
  let together = current;
  for (const number of numbers.slice(1)) {
    if (own.length === MERGED) break;
    if (!at.isReachable) break;
    const next = mergedRule(merged, rules.ruleOf(number), field, spaces);
    // A rule decides lookups or not; a merged rule that decides others than its parts would be a change.
    const parts = [merged, rules.ruleOf(number), next].map(mayDecideLookups);
    if (new Set(parts).size > 1) continue;
    const place = base + own.length / (2 * MERGED);
    const neighbours = at.neighboursOf(number);
    const [aloneAfter, togetherAfter] = [alone.with(number, place), together.with(number, place)];
    if (!neighbours.isAlike(alone, aloneAfter) || !neighbours.isAlike(together, togetherAfter)) continue;
    [alone, together, merged] = [aloneAfter, togetherAfter, next];
    own.push(number);
  }
  if (own.length === 1) return null;
  return {
    found: { group: at.group, rules: own, merged, match: matchOf(merged, field) },
    after: together,
  };
}

/**
 * Whether a rule decides lookups, on a node with or without IPv6 policies. Without them, a list with every
 * IPv4 destination is normalised to no destination.
 */
function mayDecideLookups(rule: Rule): boolean {
  return takesPartInLookups(hasEveryDestination(rule, 'ipv4') ? { ...rule, destinations: [] } : rule);
}

/** Returns lists of rules that have this field, and are alike but for it, in the order of evaluation. */
function alikeBut(field: Field, numbers: readonly number[], { rules }: LintContext): number[][] {
  const found = new Map<string, number[]>();
  for (const number of numbers) {
    const rule = rules.ruleOf(number);
    if (rule[field].length === 0) continue;
    const key = ruleKey({ ...rule, [field]: [] });
    const alike = found.get(key);
    if (alike === undefined) found.set(key, [number]);
    else alike.push(number);
  }
  return [...found.values()].filter(({ length }) => length > 1);
}

function mergedRule(one: Rule, other: Rule, field: Field, spaces: readonly AddressSpace[]): Rule {
  switch (field) {
    case 'destinations': {
      const all = [...one.destinations, ...other.destinations];
      const networks = spaces.flatMap((space) => spansIn(all, space).flatMap((span) => space.networksOf(span)));
      return { ...one, destinations: networks.map(networkOf) };
    }
    case 'destinationPorts':
    case 'sourcePorts':
      return { ...one, [field]: mergedRanges([...one[field], ...other[field]]) };
    case 'icmpTypes':
    case 'icmpCodes':
      return { ...one, [field]: [...new Set([...one[field], ...other[field]])].sort((left, right) => left - right) };
  }
}

function networkOf(text: string): Rule['destinations'][number] {
  const parsed = parseCidr(text);
  if (parsed === undefined) throw new RangeError(`merge the destinations of rules: ${text} is not a network`);
  return parsed.prefix;
}

function matchOf(rule: Rule, field: Field): MergedMatchers {
  switch (field) {
    case 'destinations':
      return { dst_cidrs: rule.destinations.map(formatPrefix) };
    case 'destinationPorts':
      return { dst_ports: rule.destinationPorts.map(portSpec) };
    case 'sourcePorts':
      return { src_ports: rule.sourcePorts.map(portSpec) };
    case 'icmpTypes':
      return { icmp_types: rule.icmpTypes };
    case 'icmpCodes':
      return { icmp_codes: rule.icmpCodes };
  }
}

const portSpec = ({ low, high }: Range): PortSpec => (low === high ? low : `${low}-${high}`);
