import type { AddressSpace } from '#analysis/engine/address-space.js';
import { decidingGroups } from '#analysis/engine/populations.js';
import { itemAt } from '#arrays/read.js';
import type { LintCheck, LintLeft } from '#contracts/analysis/policy-lint.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { Budget, CompileTooLarge } from '#policy/model/budget.js';
import { GroupPopulations, type Looked } from './group-populations.js';
import { Neighbours } from './neighbours.js';
import { PolicyRules } from './policy-rules.js';
import { RuleNeighbours } from './rule-neighbours.js';

/** The maximum number of groups that `LintLeft` lists. */
const LISTED = 20;

/** One group, with the rules around each of its rules. */
export type GroupAtWork = {
  readonly group: number;
  /** Whether a flow of one of its sources reaches the group: no default of another group stands before it. */
  readonly isReachable: boolean;
  readonly neighboursOf: (number: number) => Neighbours;
};

/** A policy during its lint, and the groups that were left. */
export class LintContext {
  /** The rules, for all that is equal in each family. */
  readonly rules: PolicyRules;
  readonly left: LintLeft[] = [];
  readonly #families: readonly PolicyRules[];

  /** `steps`: the limit of steps of each check. */
  constructor(
    readonly policy: Policy,
    readonly spaces: readonly AddressSpace[],
    private readonly steps: number,
  ) {
    const reached = spaces.filter((space) => decidingGroups.of(policy.groups, space).length > 0);
    // No flow of another family reaches a rule. One family is needed for the numbers of the rules.
    this.#families = (reached.length === 0 ? spaces.slice(0, 1) : reached).map(
      (space) => new PolicyRules(policy, space),
    );
    this.rules = itemAt(this.#families, 0);
  }

  /** Names the groups that lint proposes to remove. */
  set removedGroups(groups: ReadonlySet<number>) {
    for (const rules of this.#families) rules.removedGroups = groups;
  }

  /**
   * Runs `work` for each group, in the order of evaluation. If the limit of steps is reached, notes that the
   * other groups are left; findings that were made until then are true.
   */
  eachGroup(check: LintCheck, looked: Looked, work: (at: GroupAtWork) => void): void {
    const limits = { entries: Number.POSITIVE_INFINITY, steps: this.steps, ranks: Number.POSITIVE_INFINITY };
    const budget = new Budget(limits);
    const { groups } = this.policy;
    for (let group = 0; group < groups.length; group++) {
      try {
        work(this.at(group, looked, budget));
      } catch (error) {
        if (!(error instanceof CompileTooLarge)) throw error;
        const left = groups.slice(group).map(({ id }) => id);
        this.left.push({ check, source_groups: left.slice(0, LISTED), omitted: Math.max(0, left.length - LISTED) });
        return;
      }
    }
  }

  at(group: number, looked: Looked, budget: Budget): GroupAtWork {
    const families = this.#families.map((rules) => ({
      rules,
      populations: new GroupPopulations(rules, group, looked, budget),
    }));
    return {
      group,
      isReachable: families.some(({ populations }) => populations.reaching.length > 0),
      neighboursOf: (number) =>
        new Neighbours(
          families.map(({ rules, populations }) => new RuleNeighbours(rules, populations, number, budget)),
        ),
    };
  }
}
