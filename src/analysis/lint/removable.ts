import { Arrangement } from './arrangement.js';
import type { LintContext } from './lint-context.js';

/**
 * A rule that can be removed without a change for any flow. `by`: the numbers of the rules and defaults that
 * decide its flows then.
 */
export type Removable = { readonly group: number; readonly rule: number; readonly by: readonly (number | null)[] };

/**
 * Finds rules that can be removed without a change for any flow or DNS lookup. Each rule can be removed
 * alone. The first `limit` rules can also be removed together with those that `proposed` removes. Omits the
 * rules in `unreachable`.
 */
export function removableRules(
  context: LintContext,
  unreachable: ReadonlySet<number>,
  proposed: Arrangement,
  limit: number,
): { readonly found: readonly Removable[]; readonly proposed: Arrangement } {
  const { original } = Arrangement;
  const found: Removable[] = [];
  let current = proposed;
  context.eachGroup('removable', 'all', ({ group, neighboursOf }) => {
    for (const rule of context.rules.numbersOf(group)) {
      if (unreachable.has(rule)) continue;
      const neighbours = neighboursOf(rule);
      const alone = original.without([rule]);
      if (!neighbours.isAlike(original, alone)) continue;
      const together = current.without([rule]);
      if (!neighbours.isAlike(current, together)) continue;
      const isListed = found.length < limit;
      if (isListed) current = together;
      const by = isListed ? [...neighbours.deciders(alone, true)] : [];
      found.push({ group, rule, by: by.filter((decider) => decider === null || decider > rule) });
    }
  });
  return { found, proposed: current };
}
