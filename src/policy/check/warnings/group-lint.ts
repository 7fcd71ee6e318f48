import { bitsOf, formatPrefix, parseCidr } from '#addresses/ip-address.js';
import type { RuleMatchConfig, SourceGroupConfig } from '#contracts/policy/policy-document.js';
import {
  type Address,
  type Group,
  IPPROTO,
  PORT_PROTOCOLS,
  type Prefix,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { expressionsOf } from '#policy/check/rule-expressions.js';
import { parseProtocol } from '#policy/model/keywords.js';
import { anchorsOf } from '#policy/model/names/regex.js';
import { isContradictory } from '#policy/model/rules/rule-coverage.js';
import { whyNoNameMatches } from './hostname-lint.js';
import { lintSelector } from './selector-lint.js';
import { WarningList } from './warning-list.js';

/**
 * `dns`: whether the DNS proxy runs. `servicePlane`: whether the service plane (TLS and HTTP inspection)
 * runs. `ipv6`: whether the node enforces IPv6 policies.
 */
export type LintContext = {
  readonly dns: boolean;
  readonly servicePlane: boolean;
  readonly ipv6?: boolean | undefined;
  /** The addresses of the node; undefined if the datapath does not classify packets to and from the node. */
  readonly ownAddresses?: ReadonlySet<Address> | undefined;
};

/**
 * The warnings about one group. `document`: warnings from the JSON document of the group. `rules`: warnings
 * from its normalised rules.
 */
export type GroupWarnings = { readonly document: WarningList; readonly rules: WarningList };

/**
 * Finds valid elements of a group that are probably mistakes (D16). Compares the group with no other group.
 * The JSON pointers of the warnings are relative to the group.
 */
export function lintGroup(config: SourceGroupConfig, group: Group, context: LintContext): GroupWarnings {
  const warnings = { document: new WarningList(), rules: new WarningList() };
  lintDocument(config, warnings.document);
  for (const rule of group.rules) lintRule(rule, group, context, warnings.rules);
  return warnings.document.isEmpty && warnings.rules.isEmpty ? NOTHING : warnings;
}

const NOTHING: GroupWarnings = { document: new WarningList(), rules: new WarningList() };

function lintDocument(config: SourceGroupConfig, warnings: WarningList): void {
  const { sources, rules = [] } = config;
  const allows = config.default_action === 'allow' || rules.some(({ action }) => action === 'allow');
  lintCidrs(sources.cidrs, () => '/sources/cidrs', warnings);
  for (const [place, source] of (sources.kubernetes ?? []).entries()) {
    lintSelector(source, allows, `/sources/kubernetes/${place}`, warnings);
  }
  for (let place = 0; place < rules.length; place++) {
    const match = rules[place]?.match;
    lintCidrs(match?.dst_cidrs, () => `/rules/${place}/match/dst_cidrs`, warnings);
    if (match !== undefined) lintEmptyLists(match, () => `/rules/${place}/match`, warnings);
    if (match?.tls?.mode !== 'intercept' || match.tls.tls13_uninspectable === undefined) continue;
    const message = 'An intercepted connection is always inspected; tls13_uninspectable has no effect here.';
    warnings.add(`/rules/${place}/match/tls/tls13_uninspectable`, 'no_effect', message);
  }
}

/** Warns about each empty list that could restrict the rule. An empty list means the same as no list. */
function lintEmptyLists(match: RuleMatchConfig, at: () => string, warnings: WarningList): void {
  const { dst_cidrs, dst_ips, dns_hostname, src_ports, dst_ports, icmp_types, icmp_codes, tls } = match;
  const protocol = parseProtocol(match.proto);
  const warn = (field: string, list: readonly unknown[] | undefined, all: string): void => {
    if (list?.length !== 0) return;
    const message = `An empty list restricts nothing: this rule matches ${all}. Remove the list, or fill it.`;
    warnings.add(`${at()}/${field}`, 'empty_list_matches_all', message);
  };
  if (isEmpty(dst_cidrs) && isEmpty(dst_ips) && dns_hostname === undefined) {
    warn('dst_cidrs', dst_cidrs, 'every destination');
    warn('dst_ips', dst_ips, 'every destination');
  }
  if (protocol === 'any' || PORT_PROTOCOLS.includes(protocol ?? 0)) {
    warn('src_ports', src_ports, 'every source port');
    warn('dst_ports', dst_ports, 'every destination port');
  }
  // With the protocol icmp and neither types nor codes, the rule matches the default types (D14).
  const hasDefaultTypes = protocol === IPPROTO.icmp && isEmpty(icmp_types) && isEmpty(icmp_codes);
  const hasIcmp = protocol === IPPROTO.icmp || (protocol === 'any' && isEmpty(src_ports) && isEmpty(dst_ports));
  if (hasIcmp && !hasDefaultTypes && tls === undefined) {
    warn('icmp_types', icmp_types, 'every ICMP type');
    warn('icmp_codes', icmp_codes, 'every ICMP code');
  }
  warn(
    'tls/fingerprint_sha256',
    tls?.fingerprint_sha256,
    'every certificate that the other matchers of the rule permit',
  );
  warn('tls/http/request/methods', tls?.http?.request?.methods, 'every method');
}

const isEmpty = (list: readonly unknown[] = []) => list.length === 0;

function lintCidrs(cidrs: readonly string[] = [], at: () => string, warnings: WarningList): void {
  for (let index = 0; index < cidrs.length; index++) {
    const parsed = parseCidr(cidrs[index] ?? '');
    if (parsed?.hostBits !== true) continue;
    const message = `Bits after the prefix are ignored: this is ${formatPrefix(parsed.prefix)}.`;
    warnings.add(`${at()}/${index}`, 'host_bits', message);
  }
}

function lintRule(rule: Rule, group: Group, context: LintContext, warnings: WarningList): void {
  const { hostname, tls, pointer } = rule;
  if (isContradictory(rule)) {
    warnings.add(pointer, 'never_matches', 'This rule can never match: no protocol satisfies all its matchers.');
  }
  if (hostname === undefined && tls === undefined) return;
  for (const { pointer: at, source, whole, isForHostname } of expressionsOf(rule)) {
    const fault = isForHostname ? whyNoNameMatches(source) : undefined;
    if (fault !== undefined) {
      warnings.add(at, 'hostname_never_matches', `This hostname can never match: ${fault}.`);
    }
    const { start, end } = anchorsOf(source);
    if (start && (end || !whole)) continue;
    const message =
      'This regular expression matches anywhere in the text; begin it with ^ and end it with $ to match the whole text.';
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
    const message = 'The service plane is not configured: connections that match this rule fail.';
    warnings.add(`${pointer}/match/tls`, 'service_plane_off', message);
  }
  if (isOfNode(rule, group, context)) {
    const message =
      'This rule matches only connections from or to the node itself, which cannot be inspected. They fail, or pass without inspection in audit mode.';
    warnings.add(`${pointer}/match/tls`, 'node_uninspected', message);
  }
}

/** Whether all packets that a rule can match come from the node, or all of them go to the node. */
function isOfNode({ destinations }: Rule, { sources, selectors }: Group, { ownAddresses }: LintContext): boolean {
  if (ownAddresses === undefined) return false;
  const areOwn = (prefixes: readonly Prefix[]): boolean =>
    prefixes.length > 0 &&
    prefixes.every(({ address, length }) => length === bitsOf(address) && ownAddresses.has(address));
  return (selectors.length === 0 && areOwn(sources)) || areOwn(destinations);
}

function lintHostname({ action, pointer }: Rule, { dns }: LintContext, warnings: WarningList): void {
  if (!dns) {
    const message =
      'The DNS proxy is not configured: no address is granted for this name, and the rule matches nothing.';
    warnings.add(`${pointer}/match/dns_hostname`, 'dns_off', message);
  }
  if (action === 'deny') {
    const message =
      'A deny rule by name is best effort: it matches only addresses that clients looked up through the DNS proxy.';
    warnings.add(`${pointer}/match/dns_hostname`, 'deny_by_name', message);
  }
}
