import { type Membership, NO_MEMBERSHIP } from '#contracts/kubernetes/membership.js';
import {
  type Action,
  type Address,
  IPPROTO,
  type Mode,
  type Policy,
  type Range,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import type { RankOwner } from '#policy/model/rules/rank.js';
import { hasAnyDestination, hasEveryDestinationOfAFamily } from '#policy/model/rules/rule-coverage.js';
import { isInScope, ruleScopeOf } from '#policy/model/sources/rule-scope.js';

/** The result for a DNS lookup. A lookup is never redirected, and only a deny can be audited. */
export type LookupOutcome = { readonly verdict: 'allow' | 'deny' | 'audit'; readonly audited: boolean };

/**
 * The decision about a DNS lookup. `place`: the rule or default that decided it. `rank`: the position of this
 * rule or default in the order of the policy.
 */
export type LookupDecision = LookupOutcome & { readonly rank: number; readonly place: RankOwner };

/**
 * The reference evaluator for DNS lookups (D11): decides whether `source` may look up `name`. `name` is a
 * dotted name, or an array of labels as in a DNS message.
 */
export function evaluateLookup(
  policy: Policy,
  source: Address,
  name: string | readonly string[],
  membership: Membership = NO_MEMBERSHIP,
): LookupDecision {
  let rank = 0;
  const decidedBy = (place: RankOwner, action: Action, mode: Mode): LookupDecision => ({
    rank,
    place,
    ...lookupOutcome(action, mode),
  });
  for (const [index, group] of policy.groups.entries()) {
    const scope = ruleScopeOf(group, source, membership);
    for (const [number, rule] of group.rules.entries()) {
      if (isInScope(scope, rule.action) && lookupMismatch(rule, name) === undefined) {
        return decidedBy({ kind: 'rule', group: index, rule: number }, rule.action, rule.mode);
      }
      rank += 1;
    }
    if (group.defaultAction !== undefined) {
      if (isInScope(scope, group.defaultAction)) {
        return decidedBy({ kind: 'group_default', group: index }, group.defaultAction, group.mode);
      }
      rank += 1;
    }
  }
  return decidedBy({ kind: 'policy_default' }, policy.default.action, policy.default.mode);
}

export function lookupOutcome(action: Action, mode: Mode): LookupOutcome {
  const audited = action === 'deny' && mode === 'audit';
  return { verdict: audited ? 'audit' : action, audited };
}

export type LookupMismatch =
  | 'hostname'
  | 'destination_without_hostname'
  | 'deny_has_other_matchers'
  | 'neither_tcp_nor_udp_port_53';

export function lookupMismatch(rule: Rule, name: string | readonly string[]): LookupMismatch | undefined {
  if (rule.hostname !== undefined && !matchesHostname(rule.hostname, name)) return 'hostname';
  return lookupExclusion(rule);
}

/**
 * Returns why a rule decides no DNS lookup of any name; undefined if the rule can decide one. A lookup is
 * about the addresses of both families. So an allow rule without a hostname admits lookups if it matches
 * every destination of one family, and a deny rule denies them only if it matches every destination of both.
 */
export function lookupExclusion(rule: Rule): Exclude<LookupMismatch, 'hostname'> | undefined {
  if (rule.hostname === undefined && !hasEveryDestinationOfAFamily(rule)) return 'destination_without_hostname';
  if (rule.action === 'deny') return hasOtherMatchers(rule) ? 'deny_has_other_matchers' : undefined;
  if (rule.hostname === undefined && !allowsTcpOrDns(rule)) return 'neither_tcp_nor_udp_port_53';
  return undefined;
}

function hasOtherMatchers(rule: Rule): boolean {
  const { protocol, sourcePorts, destinationPorts, icmpTypes, icmpCodes, tls } = rule;
  const listed = [sourcePorts, destinationPorts, icmpTypes, icmpCodes].some((matcher) => matcher.length > 0);
  return listed || !hasAnyDestination(rule) || protocol !== 'any' || tls !== undefined;
}

/** Whether an allow rule without a hostname allows TCP, or allows UDP to port 53. */
function allowsTcpOrDns({ protocol, destinationPorts, icmpTypes, icmpCodes }: Rule): boolean {
  if (icmpTypes.length > 0 || icmpCodes.length > 0) return false;
  if (protocol === 'any' || protocol === IPPROTO.tcp) return true;
  return protocol === IPPROTO.udp && (destinationPorts.length === 0 || destinationPorts.some(includesPort53));
}

function includesPort53({ low, high }: Range): boolean {
  return low <= 53 && 53 <= high;
}
