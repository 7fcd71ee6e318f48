import { policyDiff } from '#analysis/answer/policy-diff.js';
import type { AddressSpace } from '#analysis/engine/address-space.js';
import { itemAt } from '#arrays/read.js';
import type { FlowDecider } from '#contracts/analysis/flow-region.js';
import type { DiffRegion, PolicyDiff } from '#contracts/analysis/policy-diff.js';
import {
  type EditDiff,
  LINT_CHECKS,
  type LintCheck,
  type LintFinding,
  type PolicyLint,
} from '#contracts/analysis/policy-lint.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { Arrangement } from './arrangement.js';
import { type Conflict, conflictsOf } from './conflicts.js';
import { editedPolicy, type Proposal } from './edits.js';
import { LintContext } from './lint-context.js';
import { conflictText, mergeableText, removableText, summaryOf, unreachableText } from './lint-texts.js';
import { type Mergeable, mergeableRules } from './mergeable.js';
import { type Removable, removableRules } from './removable.js';
import { type Unreachable, unreachableRules } from './unreachable.js';

export type LintOptions = {
  /** The families of the flows that an edit may not change. */
  readonly spaces: readonly AddressSpace[];
  readonly checks: readonly LintCheck[];
  /** The maximum number of findings of each check in the answer. */
  readonly limit: number;
  /** The limit of steps of each check, and of each comparison of an edit. */
  readonly steps: number;
};

type Found = { readonly finding: LintFinding; readonly proposal: Proposal };

/** The maximum number of rules and defaults in `LintFinding.by`, which decide the flows instead. */
const BY = 5;
/** The maximum number of regions in which the region of a conflict is searched. */
const REGIONS = 50;
const NO_CHANGE: EditDiff = { verdict: 'equal', summary: 'every flow is decided alike', complete: true };

/** Finds rules that nothing reaches, that can be removed or merged, and that contradict each other. */
export function lintPolicy(policy: Policy, options: LintOptions): PolicyLint {
  return new Lint(policy, options).run();
}

class Lint {
  readonly #context: LintContext;
  readonly #found = new Map<LintCheck, readonly Found[]>();
  readonly #counts = new Map<LintCheck, number>();

  constructor(
    private readonly policy: Policy,
    private readonly options: LintOptions,
  ) {
    this.#context = new LintContext(policy, options.spaces, options.steps);
  }

  run(): PolicyLint {
    const { checks, limit } = this.options;
    const isWanted = (check: LintCheck) => checks.includes(check);
    // Rules that nothing reaches are the findings of no other check, so they are found first in any case.
    const unreachable = unreachableRules(this.#context, isWanted('unreachable') ? limit : 0);
    const skipped = new Set(unreachable.flatMap(({ rules }) => rules));
    let proposed = Arrangement.original;
    if (isWanted('unreachable')) {
      this.#add('unreachable', unreachable, (one) => this.#unreachable(one));
      const listed = unreachable.slice(0, limit);
      const { rules } = this.#context;
      const removedGroups = new Set(listed.flatMap(({ group, isWhole }) => (isWhole ? [group] : [])));
      this.#context.removedGroups = removedGroups;
      const defaults = [...removedGroups].map((group) => rules.defaultOf(group));
      proposed = proposed.without([...listed.flatMap((one) => one.rules), ...defaults]);
    }
    if (isWanted('removable')) {
      const removable = removableRules(this.#context, skipped, proposed, limit);
      this.#add('removable', removable.found, (one) => this.#removable(one));
      proposed = removable.proposed;
    }
    if (isWanted('mergeable')) {
      const mergeable = mergeableRules(this.#context, skipped, proposed, limit);
      this.#add('mergeable', mergeable, (one) => this.#mergeable(one));
    }
    if (isWanted('conflict')) this.#add('conflict', conflictsOf(this.#context, skipped), (one) => this.#conflict(one));
    return this.#answer();
  }

  #add<T>(check: LintCheck, all: readonly T[], findingOf: (one: T) => Found): void {
    this.#found.set(check, all.slice(0, this.options.limit).map(findingOf));
    this.#counts.set(check, all.length);
  }

  #answer(): PolicyLint {
    const { checks } = this.options;
    const left = this.#context.left.filter(({ check }) => check === 'unreachable' || checks.includes(check));
    const listed = LINT_CHECKS.flatMap((check) => this.#found.get(check) ?? []);
    const countOf = (check: LintCheck) => this.#counts.get(check) ?? 0;
    return {
      summary: summaryOf(countOf, left.length === 0),
      complete: left.length === 0,
      left,
      findings: listed.map(({ finding }) => finding),
      omitted: Object.fromEntries(
        LINT_CHECKS.map((check) => [check, countOf(check) - (this.#found.get(check)?.length ?? 0)]),
      ) as Record<LintCheck, number>,
      together: this.#together(listed.filter(({ finding }) => finding.check !== 'conflict')),
    };
  }

  /** Compares the policy with the policy after all edits. */
  #together(found: readonly Found[]): PolicyLint['together'] {
    if (found.length === 0) return { ...NO_CHANGE, edits: 0 };
    const diff = this.#diffOf(
      found.map(({ proposal }) => proposal),
      0,
    );
    if (diff.verdict !== 'equal') throw new Error(`lint a policy: the proposed edits change flows: ${diff.summary}`);
    return { ...editDiff(diff), edits: found.length };
  }

  #diffOf(proposals: readonly Proposal[], limit: number): PolicyDiff {
    const { spaces, steps } = this.options;
    return policyDiff(this.policy, editedPolicy(this.policy, proposals), { spaces, steps, limit });
  }

  #unreachable({ group, rules, isWhole, by }: Unreachable): Found {
    const { id } = this.#context.rules.groupAt(group);
    const names = isWhole ? [] : rules.map((number) => this.#idOf(number));
    const rule = isWhole ? null : itemAt(names, 0);
    const edit =
      rule === null
        ? ({ edit: 'remove_group', source_group: id } as const)
        : ({ edit: 'remove_rule', source_group: id, rule } as const);
    const deciders = this.#deciders(by);
    return {
      proposal: { edit },
      finding: {
        ...{ check: 'unreachable', source_group: id, rules: names, message: unreachableText(id, rule, deciders) },
        ...listedBy(deciders),
        ...{ edit, diff: NO_CHANGE, region: null },
      },
    };
  }

  #removable({ group, rule, by }: Removable): Found {
    const { id } = this.#context.rules.groupAt(group);
    const name = this.#idOf(rule);
    const edit = { edit: 'remove_rule', source_group: id, rule: name } as const;
    const deciders = this.#deciders(by);
    return {
      proposal: { edit },
      finding: {
        ...{ check: 'removable', source_group: id, rules: [name], message: removableText(id, name, deciders) },
        ...listedBy(deciders),
        ...{ edit, diff: NO_CHANGE, region: null },
      },
    };
  }

  #mergeable({ group, rules, match, merged }: Mergeable): Found {
    const { id } = this.#context.rules.groupAt(group);
    const names = rules.map((number) => this.#idOf(number));
    const [rule = '', ...remove] = names;
    const edit = { edit: 'replace_rule', source_group: id, rule, match, remove } as const;
    return {
      proposal: { edit, merged },
      finding: {
        ...{ check: 'mergeable', source_group: id, rules: names, message: mergeableText(id, names, match) },
        ...{ by: [], by_omitted: 0, edit, diff: NO_CHANGE, region: null },
      },
    };
  }

  #conflict({ group, earlier, later }: Conflict): Found {
    const { id } = this.#context.rules.groupAt(group);
    const names = [earlier, later].map((number) => this.#idOf(number)) as [string, string];
    const edit = { edit: 'move_rule', source_group: id, rule: names[1], before: names[0] } as const;
    const diff = this.#diffOf([{ edit }], REGIONS);
    const region = diff.regions.find(({ before, after }) =>
      [before, after].every(({ source_group, rule }, at) => source_group === id && rule === names[at]),
    );
    const deciders = this.#deciders([earlier, later]) as [FlowDecider, FlowDecider];
    return {
      proposal: { edit },
      finding: {
        ...{ check: 'conflict', source_group: id, rules: names, message: conflictText(deciders) },
        ...{ by: [], by_omitted: 0, edit, diff: editDiff(diff), region: region === undefined ? null : flowsOf(region) },
      },
    };
  }

  #idOf(number: number): string {
    return this.#context.rules.ruleOf(number).id;
  }

  #deciders(numbers: readonly (number | null)[]): FlowDecider[] {
    const { rules } = this.#context;
    return numbers.map((number) => {
      if (number === null) {
        const { action, mode } = this.policy.default;
        return { decision: action, mode, source_group: null, rule: null };
      }
      const { action, mode, id } = rules.ruleOf(number);
      const { id: group } = rules.groupAt(rules.groupOf(number));
      return { decision: action, mode, source_group: group, rule: rules.isDefault(number) ? null : id };
    });
  }
}

const listedBy = (deciders: readonly FlowDecider[]): Pick<LintFinding, 'by' | 'by_omitted'> => ({
  by: deciders.slice(0, BY),
  by_omitted: Math.max(0, deciders.length - BY),
});

const editDiff = ({ verdict, summary, complete }: PolicyDiff): EditDiff => ({ verdict, summary, complete });

function flowsOf({ effect: _effect, before: _before, after: _after, cause: _cause, ...region }: DiffRegion) {
  return region;
}
