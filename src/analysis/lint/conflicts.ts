import { outcomeFor, passes } from '#analysis/engine/decision-lists.js';
import type { Rule } from '#contracts/policy/policy-model.js';
import { covers } from '#policy/model/rules/rule-coverage.js';
import { Arrangement } from './arrangement.js';
import type { LintContext } from './lint-context.js';

/** Two rules of a group whose order decides common flows. */
export type Conflict = { readonly group: number; readonly earlier: number; readonly later: number };

/**
 * Finds pairs of rules of one group of which one passes and the other denies common flows. Each also matches
 * flows that the other does not match: a rule and its exceptions are not in conflict.
 */
export function conflictsOf(context: LintContext, unreachable: ReadonlySet<number>): Conflict[] {
  const { rules } = context;
  const found: Conflict[] = [];
  context.eachGroup('conflict', 'front', ({ group, isReachable, neighboursOf }) => {
    const numbers = rules.numbersOf(group).filter((number) => !unreachable.has(number));
    const actions = new Set(numbers.map((number) => isPassing(rules.ruleOf(number))));
    if (actions.size < 2 || !isReachable) return;
    const candidates = new Set(numbers);
    for (const later of numbers) {
      const own = rules.ruleOf(later);
      const neighbours = neighboursOf(later);
      for (const earlier of neighbours.ofOwnGroup) {
        if (earlier >= later) break;
        const other = rules.ruleOf(earlier);
        if (!candidates.has(earlier) || isPassing(own) === isPassing(other)) continue;
        if (covers(own, other) || covers(other, own)) continue;
        if (neighbours.isInConflictWith(earlier, Arrangement.original)) found.push({ group, earlier, later });
      }
    }
  });
  return found;
}

const isPassing = ({ action, mode }: Rule): boolean => passes(outcomeFor(action, mode));
