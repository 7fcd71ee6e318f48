import { formatAddress, formatPrefix, ipv4MappedBy, parseAddress, parseCidr } from '#addresses/ip-address.js';
import type { Prefix } from '#contracts/policy/policy-model.js';
import type { ProblemCode } from '#contracts/policy/policy-problem.js';
import { parseAction } from '#policy/model/keywords.js';
import type { Validation } from './validation-context.js';

export function validateAction(word: string | undefined, at: string, { problems }: Validation): void {
  if (word === undefined || parseAction(word) !== undefined) return;
  problems.add(at, 'invalid_action', `${at.slice(at.lastIndexOf('/') + 1)} must be "allow" or "deny".`);
}

type Fault = { readonly code: ProblemCode; readonly message: string };

export function validateCidrs(cidrs: readonly (string | undefined)[], at: string, validation: Validation): void {
  const { problems, context } = validation;
  for (let index = 0; index < cidrs.length; index++) {
    const cidr = cidrs[index];
    const fault = cidr === undefined ? undefined : cidrFault(cidr, context.ipv6 === true);
    if (fault !== undefined) problems.add(`${at}/${index}`, fault.code, fault.message);
  }
}

export function validateAddresses(ips: readonly (string | undefined)[], at: string, validation: Validation): void {
  const { problems, context } = validation;
  for (let index = 0; index < ips.length; index++) {
    const ip = ips[index];
    const fault = ip === undefined ? undefined : addressFault(ip, context.ipv6 === true);
    if (fault !== undefined) problems.add(`${at}/${index}`, fault.code, fault.message);
  }
}

/** The part of a message that names the key of the configuration for a document with IPv6. */
export const IPV6_NOT_ENABLED = 'A policy with IPv6 needs dataplane.ipv6: enforce in the configuration of this node';

function cidrFault(text: string, ipv6: boolean): Fault | undefined {
  const parsed = parseCidr(text);
  if (parsed !== undefined && typeof parsed.prefix.address === 'number') return undefined;
  if (!isIpv6(text)) {
    const form = 'four decimal octets, "/", and 0 to 32';
    return { code: 'invalid_cidr', message: `Write an IPv4 network such as "192.0.2.0/24": ${form}.` };
  }
  if (!ipv6) {
    const message = `${IPV6_NOT_ENABLED}; without it, write an IPv4 network such as "192.0.2.0/24".`;
    return { code: 'ipv6_not_enabled', message };
  }
  const message = parsed === undefined ? ipv6Fault(text, 'a network', '2001:db8::/32') : mappedFault(parsed.prefix);
  return message === undefined ? undefined : { code: 'invalid_cidr', message };
}

/**
 * Returns why a text is not an address that a policy can name; undefined if it is. `ipv6`: whether the node
 * enforces IPv6 policies.
 */
export function addressFault(text: string, ipv6: boolean): Fault | undefined {
  const address = parseAddress(text);
  if (typeof address === 'number') return undefined;
  if (!isIpv6(text)) {
    const isNetwork = parseCidr(text) !== undefined;
    const hint = isNetwork ? 'a network goes into cidrs' : 'four decimal octets without leading zeros';
    return { code: 'invalid_address', message: `Write an IPv4 address such as "192.0.2.7": ${hint}.` };
  }
  if (!ipv6) {
    const message = `${IPV6_NOT_ENABLED}; without it, write an IPv4 address such as "192.0.2.7".`;
    return { code: 'ipv6_not_enabled', message };
  }
  const isNetwork = address === undefined && parseCidr(text) !== undefined;
  const message = isNetwork
    ? 'Write an IPv6 address such as "2001:db8::7": a network goes into cidrs.'
    : address === undefined
      ? ipv6Fault(text, 'an address', '2001:db8::7')
      : mappedFault({ address, length: 128 });
  return message === undefined ? undefined : { code: 'invalid_address', message };
}

/** Returns why a text with colons is not an IPv6 address or network (RFC 4291, 2.2). */
function ipv6Fault(text: string, noun: string, example: string): string {
  const hint = text.includes('%')
    ? 'a zone id names an interface of one machine, so a policy has none'
    : 'up to eight words of one to four hexadecimal digits, and "::" at most once for words of zeros';
  return `Write ${noun} of IPv6 such as "${example}": ${hint}.`;
}

/** Returns why a prefix of IPv4-mapped addresses is refused; undefined for any other prefix. */
export function mappedFault(prefix: Prefix): string | undefined {
  const ipv4 = ipv4MappedBy(prefix);
  if (ipv4 === undefined) return undefined;
  const text = prefix.length === 128 ? formatAddress(ipv4.address) : formatPrefix(ipv4);
  return `No packet has an IPv4-mapped address; write "${text}".`;
}

const isIpv6 = (text: string) =>
  /^\[?[0-9a-f]{0,4}:[0-9a-f:.]*[\]%/]?/i.test(text) && text.indexOf(':') !== text.lastIndexOf(':');
