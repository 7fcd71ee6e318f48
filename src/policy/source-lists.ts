import type { Budget } from './budget.js';
import { Cells } from './cells.js';
import type { Policy } from './model.js';
import { MEMBERS, membership, prefixNumber, prefixOrder, walkNesting } from './nesting.js';
import { Sequences } from './sequences.js';

/** Which groups judge which source: every address interval, and the ordered groups of each. */
export type Populations = {
  readonly starts: Cells;
  /** Per interval, the sequence of its groups in `groups`. */
  readonly numbers: Cells;
  readonly groups: Sequences;
};

/**
 * Cuts the source addresses into intervals with the same groups. A group without rules and default is left out, and
 * nothing follows a group with a default action.
 */
export function populations(policy: Policy, budget: Budget): Populations {
  const order = prefixOrder(policy.groups.flatMap(({ sources }) => sources));
  const memberships: number[] = [];
  for (const [group, { sources, rules, defaultAction }] of policy.groups.entries()) {
    if (rules.length === 0 && defaultAction === undefined) continue;
    for (const source of sources) memberships.push(membership(prefixNumber(order, source), group));
  }
  budget.ranks(policy.groups.length);
  const groups = new Sequences(budget, 'lists', 1);
  const starts = new Cells();
  const numbers = new Cells();
  const stack = new Cells();
  const bottoms = [0];

  const open = (own: readonly number[]): void => {
    let outer = bottoms.at(-1) as number;
    const outerEnd = stack.length;
    budget.steps(outerEnd - outer + own.length);
    bottoms.push(outerEnd);
    stack.reserve(outerEnd - outer + own.length);
    for (let at = 0; outer < outerEnd || at < own.length; ) {
      const inherited = outer < outerEnd ? (stack.array[outer] as number) : MEMBERS;
      const added = own[at] ?? MEMBERS;
      const group = Math.min(inherited, added);
      if (inherited === group) outer += 1;
      if (added === group) at += 1;
      stack.push(group);
      if (policy.groups[group]?.defaultAction !== undefined) break;
    }
  };

  walkNesting(order, new Float64Array(memberships).sort(), {
    open,
    close() {
      stack.length = bottoms.pop() as number;
    },
    interval(start) {
      const number = groups.intern(stack.array, bottoms.at(-1) as number, stack.length);
      if (numbers.length > 0 && numbers.array[numbers.length - 1] === number) return;
      budget.entries('sources', 1);
      starts.push(start);
      numbers.push(number);
    },
  });
  return { starts, numbers, groups };
}
