import type { LintEdit } from '#contracts/analysis/policy-lint.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';

/** A proposed edit of a policy. `merged`: the new rule of an edit `replace_rule`. */
export type Proposal = { readonly edit: LintEdit; readonly merged?: Rule };

/** Returns the policy after edits. Groups and rules that no edit names stay the same objects. */
export function editedPolicy(policy: Policy, proposals: readonly Proposal[]): Policy {
  const ofGroup = new Map<string, Proposal[]>();
  for (const proposal of proposals) {
    const own = ofGroup.get(proposal.edit.source_group);
    if (own === undefined) ofGroup.set(proposal.edit.source_group, [proposal]);
    else own.push(proposal);
  }
  const groups = policy.groups.flatMap((group) => {
    const own = ofGroup.get(group.id);
    if (own === undefined) return [group];
    return own.some(({ edit }) => edit.edit === 'remove_group') ? [] : [editedGroup(group, own)];
  });
  return { ...policy, groups };
}

function editedGroup(group: Group, proposals: readonly Proposal[]): Group {
  const removed = new Set<string>();
  const replaced = new Map<string, Rule>();
  const moves: { readonly rule: string; readonly before: string }[] = [];
  for (const { edit, merged } of proposals) {
    if (edit.edit === 'remove_rule') removed.add(edit.rule);
    if (edit.edit === 'move_rule') moves.push(edit);
    if (edit.edit !== 'replace_rule') continue;
    for (const rule of edit.remove) removed.add(rule);
    if (merged !== undefined) replaced.set(edit.rule, merged);
  }
  let rules = group.rules.filter(({ id }) => !removed.has(id)).map((rule) => replaced.get(rule.id) ?? rule);
  for (const { rule, before } of moves) {
    const moved = rules.filter(({ id }) => id === rule);
    const others = rules.filter(({ id }) => id !== rule);
    rules = others.toSpliced(
      others.findIndex(({ id }) => id === before),
      0,
      ...moved,
    );
  }
  return { ...group, rules };
}
