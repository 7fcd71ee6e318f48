import type { AddressSpace } from '#analysis/engine/address-space.js';
import type { Compared } from '#analysis/engine/comparison.js';
import { itemAt } from '#arrays/read.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { Budget, CompileTooLarge } from '#policy/model/budget.js';
import { Arrangement } from './arrangement.js';
import { type GroupAtWork, LintContext } from './lint-context.js';
import { coversOf } from './unreachable.js';

/** The maximum number of rules that are looked at, and the limit of steps. */
const LOOKED_AT = 32;
const STEPS = 200_000;

/**
 * A rule that decides no flow and no DNS lookup after a change of the policy. `isNew`: the rule was added.
 * `by`: the rules and defaults that decide its flows instead; a default has the rule null, and the default of
 * the policy also has the group null.
 */
export type LostRule = {
  readonly group: Group;
  readonly rule: Rule;
  readonly isNew: boolean;
  readonly by: readonly { readonly group: Group | null; readonly rule: Rule | null }[];
};

/**
 * Finds rules that decided a flow or lookup before a change and decide none after it, and new rules that
 * decide none, among the rules that the change can have covered. Looks at a limited number of rules.
 */
export function lostRules(
  before: Policy,
  after: Policy,
  compared: Compared,
  spaces: readonly AddressSpace[],
): LostRule[] {
  const limits = { entries: Number.POSITIVE_INFINITY, steps: STEPS, ranks: Number.POSITIVE_INFINITY };
  const budget = new Budget(limits);
  const found: LostRule[] = [];
  const sides = [new Side(before, spaces, budget), new Side(after, spaces, budget)] as const;
  try {
    for (const at of compared.coverable(LOOKED_AT)) {
      const group = itemAt(after.groups, at.group);
      const rule = itemAt(group.rules, at.rule);
      if (sides[1].isReached(at.group, at.rule)) continue;
      const former = before.groups.findIndex(({ id }) => id === group.id);
      const twin = before.groups[former]?.rules.findIndex(({ id }) => id === rule.id) ?? -1;
      if (twin >= 0 && !sides[0].isReached(former, twin)) continue;
      found.push({ group, rule, isNew: twin < 0, by: sides[1].coversOf(at.group, at.rule) });
    }
  } catch (error) {
    if (!(error instanceof CompileTooLarge)) throw error;
  }
  return found;
}

/** One of two compared policies. */
class Side {
  readonly #groups = new Map<number, GroupAtWork>();
  #context: LintContext | undefined;

  constructor(
    private readonly policy: Policy,
    private readonly spaces: readonly AddressSpace[],
    private readonly budget: Budget,
  ) {}

  isReached(group: number, rule: number): boolean {
    return this.#at(group).neighboursOf(this.#numberOf(group, rule)).isReached(Arrangement.original);
  }

  coversOf(group: number, rule: number): LostRule['by'] {
    const { rules } = this.#lint();
    return coversOf(this.#numberOf(group, rule), this.#at(group), this.#lint()).map((number) => {
      if (number === null) return { group: null, rule: null };
      const own = rules.groupAt(rules.groupOf(number));
      return { group: own, rule: rules.isDefault(number) ? null : rules.ruleOf(number) };
    });
  }

  #numberOf(group: number, rule: number): number {
    return this.#lint().rules.numberAt(group, rule);
  }

  #at(group: number): GroupAtWork {
    let at = this.#groups.get(group);
    if (at === undefined) {
      at = this.#lint().at(group, 'front', this.budget);
      this.#groups.set(group, at);
    }
    return at;
  }

  #lint(): LintContext {
    this.#context ??= new LintContext(this.policy, this.spaces, STEPS);
    return this.#context;
  }
}
