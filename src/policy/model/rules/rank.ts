import type { Policy, Rule, Verdict } from '#contracts/policy/policy-model.js';

/**
 * A rule or default of a policy, which has a rank. Ranks number the order of evaluation (D3): the rules of
 * each group, then the default of that group, and finally the policy default. If several match a packet, the
 * lowest rank decides.
 */
export type RankOwner =
  | { readonly kind: 'rule'; readonly group: number; readonly rule: number }
  | { readonly kind: 'group_default'; readonly group: number }
  | { readonly kind: 'policy_default' };

/** Returns the rules and defaults of a policy. The index of an element is its rank. */
export function rankOwners(policy: Policy): RankOwner[] {
  const found: RankOwner[] = [];
  for (const [group, { rules, defaultAction }] of policy.groups.entries()) {
    for (let rule = 0; rule < rules.length; rule++) found.push({ kind: 'rule', group, rule });
    if (defaultAction !== undefined) found.push({ kind: 'group_default', group });
  }
  found.push({ kind: 'policy_default' });
  return found;
}

/**
 * The verdict of a rule or default. `audited`: its mode is audit. In this mode, TCP packets that belong to no
 * known connection pass too (D4).
 */
export type Outcome = { readonly verdict: Verdict; readonly audited: boolean };

export function outcomeAt(policy: Policy, place: RankOwner): Outcome {
  switch (place.kind) {
    case 'rule': {
      const rule = policy.groups[place.group]?.rules[place.rule];
      if (rule === undefined) throw new RangeError('compute the rank of a rule: the policy has no such rule');
      return outcomeOf(rule);
    }
    case 'group_default': {
      const group = policy.groups[place.group];
      if (group?.defaultAction === undefined)
        throw new RangeError('compute the rank of a default: the policy has no such default');
      return outcome(group.defaultAction, group.mode);
    }
    case 'policy_default':
      return outcome(policy.default.action, policy.default.mode);
  }
}

export function outcomeOf({ tls, action, mode }: Rule): Outcome {
  return tls === undefined ? outcome(action, mode) : { verdict: 'redirect', audited: mode === 'audit' };
}

export function outcome(action: 'allow' | 'deny', mode: 'audit' | 'enforce'): Outcome {
  const audited = mode === 'audit';
  if (action === 'allow') return { verdict: 'allow', audited };
  return { verdict: audited ? 'audit' : 'deny', audited };
}
