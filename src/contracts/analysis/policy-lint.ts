import type { RuleMatchConfig } from '#contracts/policy/policy-document.js';
import type { FlowDecider, FlowRegion } from './flow-region.js';
import type { DiffVerdict } from './policy-diff.js';

/**
 * The checks of lint.
 * - `unreachable`: no flow and no DNS lookup reaches a rule, or a group.
 * - `removable`: a rule decides flows, and without it they are decided alike.
 * - `mergeable`: rules of one group that are alike but for one list of matchers can be one rule.
 * - `conflict`: an allow and a deny of one group match common flows, each also matches others, and their
 *   order decides.
 */
export const LINT_CHECKS = ['unreachable', 'removable', 'mergeable', 'conflict'] as const;
export type LintCheck = (typeof LINT_CHECKS)[number];

/** One list of matchers, with which one rule replaces several. */
export type MergedMatchers = Pick<
  RuleMatchConfig,
  'dst_cidrs' | 'dst_ports' | 'src_ports' | 'icmp_types' | 'icmp_codes'
>;

/**
 * An edit of a policy document. `replace_rule`: the rule gets these matchers in place of those of the same
 * name, and the rules in `remove` are removed. `move_rule`: the rule is evaluated directly before the rule
 * `before`.
 */
export type LintEdit =
  | { readonly edit: 'remove_group'; readonly source_group: string }
  | { readonly edit: 'remove_rule'; readonly source_group: string; readonly rule: string }
  | {
      readonly edit: 'replace_rule';
      readonly source_group: string;
      readonly rule: string;
      readonly match: MergedMatchers;
      readonly remove: readonly string[];
    }
  | {
      readonly edit: 'move_rule';
      readonly source_group: string;
      readonly rule: string;
      readonly before: string;
    };

/** The effect of an edit on flows. */
export type EditDiff = { readonly verdict: DiffVerdict; readonly summary: string; readonly complete: boolean };

export type LintFinding = {
  readonly check: LintCheck;
  readonly source_group: string;
  /** The ids of the rules, in the order of evaluation. Empty: the finding is about the whole group. */
  readonly rules: readonly string[];
  /** One sentence. */
  readonly message: string;
  /**
   * The rules or defaults that decide instead. `unreachable`: those that decide the flows of the rule.
   * `removable`: those that would decide them without the rule. Empty for the other checks.
   */
  readonly by: readonly FlowDecider[];
  readonly by_omitted: number;
  readonly edit: LintEdit;
  /** The effect of this edit alone. It changes no flow, except for a conflict. */
  readonly diff: EditDiff;
  /** `conflict`: flows that both rules match, and that the edit changes. Otherwise null. */
  readonly region: FlowRegion | null;
};

/** Groups that a check did not look at, because the limit of steps was reached. */
export type LintLeft = {
  readonly check: LintCheck;
  readonly source_groups: readonly string[];
  readonly omitted: number;
};

export type PolicyLint = {
  /** One sentence. */
  readonly summary: string;
  /** False if the limit of steps was reached. The findings are then a part of all findings. */
  readonly complete: boolean;
  readonly left: readonly LintLeft[];
  readonly findings: readonly LintFinding[];
  /** The number of findings of each check that are not listed. */
  readonly omitted: Readonly<Record<LintCheck, number>>;
  /** All edits of the listed findings together, except for those of conflicts. They change no flow. */
  readonly together: EditDiff & { readonly edits: number };
};
