import { mismatch } from './mismatch.js';
import { type Grants, noGrants, type Packet, type Policy } from './model.js';
import { covers } from './prefix.js';
import { type Outcome, outcomeAt, type Place } from './rank.js';

/** What decides a packet, and how. */
export type Decision = Outcome & { readonly rank: number; readonly place: Place };

/** The reference: the walk of D3, one group and one rule after the other. Everything else is held equal to it. */
export function evaluate(policy: Policy, packet: Packet, grants: Grants = noGrants): Decision {
  let rank = 0;
  const decidedBy = (place: Place): Decision => ({ rank, place, ...outcomeAt(policy, place) });
  for (const [group, { sources, rules, defaultAction }] of policy.groups.entries()) {
    const concerned = sources.some((prefix) => covers(prefix, packet.source));
    for (const [index, rule] of rules.entries()) {
      if (concerned && mismatch(rule, packet, grants) === undefined) {
        return decidedBy({ kind: 'rule', group, rule: index });
      }
      rank += 1;
    }
    if (defaultAction !== undefined) {
      if (concerned) return decidedBy({ kind: 'group_default', group });
      rank += 1;
    }
  }
  return decidedBy({ kind: 'policy_default' });
}
