import { auditOverlaps } from './audit-overlap.js';
import { isContradictory } from './coverage.js';
import type { PolicyConfig } from './document.js';
import { expressionsOf } from './expressions.js';
import { formatPrefix, parseCidr } from './ipv4.js';
import type { Policy, Rule } from './model.js';
import type { Warning, WarningCode } from './problem.js';
import { unreachableGroups } from './reach.js';
import { anchorsOf } from './regex.js';
import { shadowedRules } from './shadow.js';

/** Which parts of the node run that some rules need. */
export type LintContext = {
  readonly dns: boolean;
  readonly servicePlane: boolean;
  /** Whether the selectors of an integration resolve to addresses; undefined: none does yet. */
  readonly resolves?: ((integration: string) => boolean) | undefined;
};

/** One answer lists at most this many warnings of one code, and says how many there are besides. */
export const MAX_WARNINGS_OF_A_CODE = 100;

/**
 * What is valid and probably not meant (D16). Pointers are into the PolicyConfig. The search is bounded: it may miss,
 * but what it claims is so.
 */
export function lint(document: PolicyConfig, policy: Policy, context: LintContext): Warning[] {
  const warnings = new WarningList();
  lintSources(document, context, warnings);
  const unreachable = unreachableGroups(policy);
  for (const index of unreachable) {
    const message = 'No packet reaches this group: earlier groups decide for all its sources.';
    warnings.add(policy.groups[index]?.pointer ?? '', 'unreachable_group', message);
  }
  for (const { rules } of policy.groups) for (const rule of rules) lintRule(rule, context, warnings);
  for (const { rule, by } of shadowedRules(policy, unreachable)) {
    warnings.add(rule.pointer, 'shadowed', `This rule can never match: ${by.pointer} decides all its packets before.`);
  }
  for (const { rule, by } of auditOverlaps(policy)) {
    const behind = 'rules' in by ? `the default of ${by.pointer}` : by.pointer;
    const message = `This deny is under audit and ends the walk: packets pass that ${behind} denies.`;
    warnings.add(rule.pointer, 'audit_before_deny', message);
  }
  return warnings.all();
}

function lintSources(document: PolicyConfig, { resolves }: LintContext, warnings: WarningList): void {
  for (const [index, { sources, rules = [] }] of (document.source_groups ?? []).entries()) {
    const group = `/source_groups/${index}`;
    lintCidrs(sources.cidrs, () => `${group}/sources/cidrs`, warnings);
    for (const [place, { integration }] of (sources.kubernetes ?? []).entries()) {
      if (resolves?.(integration) === true) continue;
      const message = 'This selector resolves to no address yet; until it does, it adds no source.';
      warnings.add(`${group}/sources/kubernetes/${place}`, 'selector_unresolved', message);
    }
    for (let place = 0; place < rules.length; place++) {
      const match = rules[place]?.match;
      lintCidrs(match?.dst_cidrs, () => `${group}/rules/${place}/match/dst_cidrs`, warnings);
      if (match?.tls?.mode !== 'intercept' || match.tls.tls13_uninspectable === undefined) continue;
      const message = 'An intercepted connection is always inspected; tls13_uninspectable has no effect here.';
      warnings.add(`${group}/rules/${place}/match/tls/tls13_uninspectable`, 'no_effect', message);
    }
  }
}

function lintCidrs(cidrs: readonly string[] = [], at: () => string, warnings: WarningList): void {
  for (let index = 0; index < cidrs.length; index++) {
    const parsed = parseCidr(cidrs[index] ?? '');
    if (parsed?.hostBits !== true) continue;
    const message = `Bits behind the prefix are ignored: this is ${formatPrefix(parsed.prefix)}.`;
    warnings.add(`${at()}/${index}`, 'host_bits', message);
  }
}

function lintRule(rule: Rule, context: LintContext, warnings: WarningList): void {
  const { hostname, tls, pointer } = rule;
  if (isContradictory(rule)) {
    warnings.add(pointer, 'never_matches', 'This rule can never match: no protocol has all that it asks for.');
  }
  if (hostname === undefined && tls === undefined) return;
  for (const { pointer: at, source, whole } of expressionsOf(rule)) {
    const { start, end } = anchorsOf(source);
    if (start && (end || !whole)) continue;
    const message = 'This expression is searched for anywhere in the text; begin it with ^ and end it with $.';
    warnings.add(at, 'unanchored_regex', message);
  }
  if (hostname !== undefined) lintHostname(rule, context, warnings);
  if (tls === undefined) return;
  if (rule.destinationPorts.length === 0) {
    const message =
      'Without dst_ports this rule sends every TCP connection to its destinations through the service plane.';
    warnings.add(`${pointer}/match/tls`, 'tls_without_ports', message);
  }
  if (!context.servicePlane) {
    const message = 'The service plane is off: connections that reach this rule fail.';
    warnings.add(`${pointer}/match/tls`, 'service_plane_off', message);
  }
}

function lintHostname({ action, pointer }: Rule, { dns }: LintContext, warnings: WarningList): void {
  if (!dns) {
    const message = 'The DNS proxy is off: no address is granted for this name, and the rule matches nothing.';
    warnings.add(`${pointer}/match/dns_hostname`, 'dns_off', message);
  }
  if (action === 'deny') {
    const message = 'A deny by name is best effort: it knows only addresses that were looked up through the DNS proxy.';
    warnings.add(`${pointer}/match/dns_hostname`, 'deny_by_name', message);
  }
}

class WarningList {
  readonly #warnings: Warning[] = [];
  readonly #counts = new Map<WarningCode, number>();

  add(pointer: string, code: WarningCode, message: string): void {
    const count = (this.#counts.get(code) ?? 0) + 1;
    this.#counts.set(code, count);
    if (count <= MAX_WARNINGS_OF_A_CODE) this.#warnings.push({ pointer, code, message });
  }

  all(): Warning[] {
    for (const [code, count] of this.#counts) {
      if (count <= MAX_WARNINGS_OF_A_CODE) continue;
      const message = `There are ${count - MAX_WARNINGS_OF_A_CODE} more warnings of this kind.`;
      this.#warnings.push({ pointer: '', code, message });
    }
    return this.#warnings;
  }
}
