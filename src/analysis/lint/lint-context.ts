import type { AddressSpace } from '#analysis/engine/address-space.js';
import type { LintCheck, LintLeft } from '#contracts/analysis/policy-lint.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { Budget, CompileTooLarge } from '#policy/model/budget.js';
import { GroupPopulations, type Looked } from './group-populations.js';
import { PolicyRules } from './policy-rules.js';
import { RuleNeighbours } from './rule-neighbours.js';

/** The maximum number of groups that `LintLeft` lists. */
const LISTED = 20;

/** One group, with the rules around each of its rules. */
export type GroupAtWork = {
  readonly group: number;
  readonly populations: GroupPopulations;
  readonly neighboursOf: (number: number) => RuleNeighbours;
};

/** A policy during its lint, and the groups that were left. */
export class LintContext {
  readonly rules: PolicyRules;
  readonly left: LintLeft[] = [];

  /** `steps`: the limit of steps of each check. */
  constructor(
    readonly policy: Policy,
    readonly space: AddressSpace,
    private readonly steps: number,
  ) {
    this.rules = new PolicyRules(policy, space);
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
    const populations = new GroupPopulations(this.rules, group, looked, budget);
    return {
      group,
      populations,
      neighboursOf: (number) => new RuleNeighbours(this.rules, populations, number, budget),
    };
  }
}
