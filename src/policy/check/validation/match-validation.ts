import type { PortSpec, RuleMatchConfig } from '#contracts/policy/policy-document.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import type { Intact } from '#policy/document/shape.js';
import { parseProtocol } from '#policy/model/keywords.js';
import { parsePorts } from '#policy/model/parse-ports.js';
import { validateHostname } from './hostname-validation.js';
import { validateTls } from './tls-validation.js';
import type { Validation } from './validation-context.js';
import { IPV6_NOT_ENABLED, validateAddresses, validateCidrs } from './value-validation.js';

export function validateMatch(match: Intact<RuleMatchConfig>, at: string, validation: Validation): void {
  if (match.dst_cidrs !== undefined) validateCidrs(match.dst_cidrs, `${at}/dst_cidrs`, validation);
  if (match.dst_ips !== undefined) validateAddresses(match.dst_ips, `${at}/dst_ips`, validation);
  if (match.dns_hostname !== undefined) {
    validateHostname(match.dns_hostname, `${at}/dns_hostname`, validation);
  }
  validatePorts(match.src_ports, `${at}/src_ports`, validation);
  validatePorts(match.dst_ports, `${at}/dst_ports`, validation);
  validateProtocol(match, at, validation);
  if (match.tls !== undefined) validateTls(match.tls, `${at}/tls`, validation);
}

function validateProtocol(match: Intact<RuleMatchConfig>, at: string, { problems, context }: Validation): void {
  const protocol = parseProtocol(match.proto);
  if (protocol === IPPROTO.icmpv6 && typeof match.proto === 'string' && context.ipv6 !== true) {
    problems.add(`${at}/proto`, 'ipv6_not_enabled', `${IPV6_NOT_ENABLED}, also for ICMPv6.`);
    return;
  }
  if (protocol === undefined) {
    const digits = typeof match.proto === 'string' && /^[0-9]+$/.test(match.proto);
    const hint = digits ? `; write the number without quotes: ${match.proto}` : '';
    problems.add(`${at}/proto`, 'invalid_protocol', `A protocol is "tcp", "udp", "icmp", "any" or a number${hint}.`);
  }
  const isIcmpv6 = protocol === IPPROTO.icmpv6 && context.ipv6 === true;
  const icmp = protocol === 'any' || protocol === IPPROTO.icmp || isIcmpv6 || protocol === undefined;
  const typed = isFilled(match.icmp_types) || isFilled(match.icmp_codes);
  if (typed && !icmp) {
    const field = isFilled(match.icmp_types) ? 'icmp_types' : 'icmp_codes';
    problems.add(
      `${at}/${field}`,
      'icmp_needs_icmp',
      context.ipv6 === true
        ? 'ICMP types and codes need the protocol icmp, icmpv6 or any.'
        : 'ICMP types and codes need the protocol icmp or any.',
    );
  }
  if (typed || protocol === IPPROTO.icmp || isIcmpv6) {
    for (const field of ['src_ports', 'dst_ports'] as const) {
      if (isFilled(match[field])) problems.add(`${at}/${field}`, 'icmp_with_ports', 'An ICMP rule has no ports.');
    }
  }
  if (match.tls !== undefined && protocol !== undefined && protocol !== 'any' && protocol !== IPPROTO.tcp) {
    problems.add(`${at}/tls`, 'tls_needs_tcp', 'A rule with tls needs the protocol tcp or any.');
  }
}

function validatePorts(
  ports: readonly (PortSpec | undefined)[] | undefined,
  at: string,
  { problems }: Validation,
): void {
  if (ports === undefined) return;
  for (let index = 0; index < ports.length; index++) {
    const spec = ports[index];
    if (spec === undefined || typeof spec === 'number') continue;
    const parsed = parsePorts(spec);
    if ('fault' in parsed) problems.add(`${at}/${index}`, 'invalid_port', `Invalid port: ${parsed.fault}.`);
  }
}

function isFilled(list: readonly unknown[] | undefined): boolean {
  return list !== undefined && list.length > 0;
}
