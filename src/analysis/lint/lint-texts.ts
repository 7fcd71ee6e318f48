import { deciderText } from '#analysis/answer/ask.js';
import type { FlowDecider } from '#contracts/analysis/flow-region.js';
import { LINT_CHECKS, type LintCheck, type MergedMatchers } from '#contracts/analysis/policy-lint.js';

/** The maximum number of rules and defaults that a sentence names. */
const NAMED = 3;

export function unreachableText(group: string, rule: string | null, by: readonly FlowDecider[]): string {
  const name = rule === null ? `the group ${group}` : `${group}/${rule}`;
  if (by.length === 0) return `no flow can match ${name}`;
  return `no flow reaches ${name}: ${list(by.map(deciderText))} ${by.length === 1 ? 'decides' : 'decide'} all its flows`;
}

export function removableText(group: string, rule: string, by: readonly FlowDecider[]): string {
  return `${group}/${rule} can be removed: ${list(by.map(deciderText))} ${by.length === 1 ? 'decides' : 'decide'} its flows alike`;
}

export function mergeableText(group: string, rules: readonly string[], match: MergedMatchers): string {
  const [field = ''] = Object.keys(match);
  return `${list(rules.map((rule) => `${group}/${rule}`))} can be one rule with more ${field}`;
}

export function conflictText([earlier, later]: readonly [FlowDecider, FlowDecider]): string {
  return `${deciderText(earlier)} (${wordOf(earlier)}) decides flows that ${deciderText(later)} (${wordOf(later)}) matches too: the order matters`;
}

export function summaryOf(countOf: (check: LintCheck) => number, isComplete: boolean): string {
  const parts = LINT_CHECKS.flatMap((check) => {
    const count = countOf(check);
    return count === 0 ? [] : [`${count} ${check}`];
  });
  const end = isComplete ? '' : '; the lint is not complete';
  return `${parts.length === 0 ? 'nothing was found' : `found: ${parts.join(', ')}`}${end}`;
}

const wordOf = ({ decision, mode }: FlowDecider): string => (mode === 'audit' ? `${decision}, audit` : decision);

function list(names: readonly string[]): string {
  const shown = names.slice(0, NAMED);
  const more = names.length - shown.length;
  if (more > 0) return `${shown.join(', ')} and ${more} more`;
  const last = shown.at(-1) ?? '';
  return shown.length < 2 ? last : `${shown.slice(0, -1).join(', ')} and ${last}`;
}
