import { Arrangement } from './arrangement.js';
import type { GroupAtWork, LintContext } from './lint-context.js';

/**
 * Rules that nothing reaches: all rules of a group with its default, or one rule. `by`: the numbers of the
 * rules and defaults that decide their flows.
 */
export type Unreachable = {
  readonly group: number;
  readonly rules: readonly number[];
  readonly isWhole: boolean;
  readonly by: readonly (number | null)[];
};

/**
 * The maximum number of unreachable rules of a group for which `by` (the rules that decide instead) is
 * computed.
 */
const EXPLAINED = 16;

/** Finds the rules and groups that no flow and no DNS lookup reaches. `limit`: the findings with `by`. */
export function unreachableRules(context: LintContext, limit: number): Unreachable[] {
  const { rules } = context;
  const found: Unreachable[] = [];
  context.eachGroup('unreachable', 'front', (at) => {
    const numbers = rules.numbersOf(at.group);
    const { defaultAction } = rules.groupAt(at.group);
    const isReached = (number: number) => at.neighboursOf(number).isReached(Arrangement.original);
    const add = (of: readonly number[], isWhole: boolean): void => {
      const explained = of.length === 0 ? [rules.defaultOf(at.group)] : of.slice(0, EXPLAINED);
      const by = found.length < limit ? explained.flatMap((number) => coversOf(number, at, context)) : [];
      found.push({ group: at.group, rules: of, isWhole, by: [...new Set(by)] });
    };
    const isEmpty = numbers.length === 0 && defaultAction === undefined;
    const isWhole =
      !isEmpty && !numbers.some(isReached) && (defaultAction === undefined || !isReached(rules.defaultOf(at.group)));
    if (isWhole) add(numbers, true);
    else for (const number of numbers) if (!isReached(number)) add([number], false);
  });
  return found;
}

/**
 * Returns the rules and defaults that decide the flows of a rule that nothing reaches. Leaves out rules
 * without which the others still decide all its flows.
 */
export function coversOf(number: number, { isReachable, neighboursOf }: GroupAtWork, { rules }: LintContext) {
  const neighbours = neighboursOf(number);
  const deciders = [...neighbours.deciders(Arrangement.original, false)];
  const isRule = (decider: number | null): decider is number => decider !== null && !rules.isDefault(decider);
  // A default of another group that stands before this group decides all its flows.
  if (!isReachable) return deciders.filter((decider) => !isRule(decider));
  const unneeded = neighbours.touching.filter((other) => other !== number && !deciders.includes(other));
  let fewer = Arrangement.original.without(unneeded);
  for (const decider of deciders.filter(isRule).reverse()) {
    const without = fewer.without([decider]);
    if (!neighbours.isReached(without)) fewer = without;
  }
  return deciders.filter((decider) => !isRule(decider) || !fewer.removed.has(decider));
}
