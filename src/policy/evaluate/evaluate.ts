import { type Membership, NO_MEMBERSHIP } from '#contracts/kubernetes/membership.js';
import { type Grants, noGrants, type Packet, type Policy } from '#contracts/policy/policy-model.js';
import { type Outcome, outcomeAt, type RankOwner } from '#policy/model/rules/rank.js';
import { isInScope, ruleScopeOf } from '#policy/model/sources/rule-scope.js';
import { mismatch } from './mismatch.js';

/**
 * The decision about a packet. `place`: the rule or default that decided it. `rank`: the position of this
 * rule or default in the order of the policy.
 */
export type Decision = Outcome & { readonly rank: number; readonly place: RankOwner };

/**
 * The reference evaluator of packets. It visits the groups and their rules one after the other (D3). Tests
 * compare the other evaluators with this function.
 */
export function evaluate(
  policy: Policy,
  packet: Packet,
  grants: Grants = noGrants,
  membership: Membership = NO_MEMBERSHIP,
): Decision {
  let rank = 0;
  const decidedBy = (place: RankOwner): Decision => ({ rank, place, ...outcomeAt(policy, place) });
  for (const [group, candidate] of policy.groups.entries()) {
    const { rules, defaultAction } = candidate;
    const scope = ruleScopeOf(candidate, packet.source, membership);
    for (const [index, rule] of rules.entries()) {
      if (isInScope(scope, rule.action) && mismatch(rule, packet, grants) === undefined) {
        return decidedBy({ kind: 'rule', group, rule: index });
      }
      rank += 1;
    }
    if (defaultAction !== undefined) {
      if (isInScope(scope, defaultAction)) return decidedBy({ kind: 'group_default', group });
      rank += 1;
    }
  }
  return decidedBy({ kind: 'policy_default' });
}
