import { ofFamily } from '#addresses/ip-address.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import { type GroupPart, inEvaluationOrder } from '#policy/check/policy-parts.js';
import type { ContainingGroups } from '#policy/check/shadow/containing-groups.js';
import { unreachableGroups } from '#policy/check/shadow/reach.js';
import { shadowedRules } from '#policy/check/shadow/shadow.js';
import { auditFallThroughs, auditOverlaps } from './audit-lint.js';
import { namesWithoutSni, uncoveredQuic } from './https-lint.js';
import { WarningList } from './warning-list.js';
import { widenedInspections } from './widened-inspection.js';

/**
 * Finds valid elements of a policy that are probably mistakes (D16). Warnings at the JSON pointer `first`
 * precede the others. Pointers are relative to the PolicyConfig. `groups` must be in the order of the
 * document. `ipv6`: whether the node enforces IPv6 policies. The search is bounded, so some mistakes are not
 * found.
 */
export function lint(
  groups: readonly GroupPart[],
  policy: Policy,
  {
    first,
    containingGroups,
    ipv6 = false,
  }: {
    readonly first?: string | undefined;
    readonly containingGroups?: ContainingGroups | undefined;
    readonly ipv6?: boolean | undefined;
  } = {},
): Warning[] {
  const warnings = new WarningList(first);
  for (const { group, warnings: own } of groups) warnings.addAll(group.pointer, own.document);
  const unreachable = unreachableGroups(policy);
  for (const index of unreachable) {
    const message = 'No packet reaches this group: earlier groups decide for all its sources.';
    warnings.add(policy.groups[index]?.pointer ?? '', 'unreachable_group', message);
  }
  for (const { group, warnings: own } of inEvaluationOrder(groups)) warnings.addAll(group.pointer, own.rules);
  for (const { pointer, by } of shadowedRules(policy, unreachable, containingGroups)) {
    warnings.add(pointer, 'shadowed', `This rule can never match: ${by} decides all its packets first.`);
  }
  for (const { pointer, behind } of auditOverlaps(policy)) {
    const message = `This deny is in audit mode, so it lets packets pass that ${behind} would deny.`;
    warnings.add(pointer, 'audit_before_deny', message);
  }
  for (const { pointer, to } of auditFallThroughs(policy)) {
    const message = `This group is in audit mode and has no default_action: packets that match none of its rules can reach ${to}, which is enforced and denies them.`;
    warnings.add(pointer, 'audit_falls_through', message);
  }
  for (const { pointer, by } of widenedInspections(policy)) {
    const message = `These matchers exclude nothing: ${by} allows every connection that they do not match.`;
    warnings.add(pointer, 'inspection_widened', message);
  }
  for (const pointer of namesWithoutSni(policy)) {
    const message =
      'This rule allows every server that shares an address with the name; tls.sni restricts it to connections for the name.';
    warnings.add(pointer, 'name_without_sni', message);
  }
  for (const { pointer, packet } of uncoveredQuic(policy)) {
    const message = `QUIC passes beside this rule: the policy allows UDP to port 443, for example from ${packet}. Deny UDP to port 443 too.`;
    warnings.add(pointer, 'quic_not_covered', message);
  }
  if (ipv6 && hasNoIpv6Source(policy)) {
    const { action, mode, from } = policy.default;
    const decided = action === 'allow' ? 'allows' : mode === 'audit' ? 'passes, and records,' : 'denies';
    const name = from === 'fallback' ? 'policy.fallback' : 'default_policy';
    warnings.add('', 'no_ipv6_sources', `No group has an IPv6 source: ${name} ${decided} all IPv6.`);
  }
  return warnings.all();
}

const hasNoIpv6Source = ({ groups }: Policy): boolean =>
  groups.length > 0 &&
  groups.every(({ sources, selectors }) => selectors.length === 0 && ofFamily(sources, 'ipv6').length === 0);
