import { parseIpv4Address, parseIpv4Cidr } from '#policy/model/ip-address.js';
import { parseAction } from '#policy/model/keywords.js';
import type { Validation } from './validation-context.js';

export function validateAction(word: string | undefined, at: string, { problems }: Validation): void {
  if (word === undefined || parseAction(word) !== undefined) return;
  problems.add(at, 'invalid_action', `${at.slice(at.lastIndexOf('/') + 1)} must be "allow" or "deny".`);
}

export function validateCidrs(cidrs: readonly (string | undefined)[], at: string, { problems }: Validation): void {
  for (let index = 0; index < cidrs.length; index++) {
    const cidr = cidrs[index];
    if (cidr === undefined || parseIpv4Cidr(cidr) !== undefined) continue;
    const message = isIpv6(cidr)
      ? 'IPv6 is not supported; write an IPv4 network such as "192.0.2.0/24".'
      : 'Write an IPv4 network such as "192.0.2.0/24": four decimal octets, "/", and 0 to 32.';
    problems.add(`${at}/${index}`, 'invalid_cidr', message);
  }
}

export function validateAddresses(ips: readonly (string | undefined)[], at: string, { problems }: Validation): void {
  for (let index = 0; index < ips.length; index++) {
    const ip = ips[index];
    if (ip === undefined || parseIpv4Address(ip) !== undefined) continue;
    problems.add(`${at}/${index}`, 'invalid_address', addressFault(ip));
  }
}

/** Returns a sentence for the user that explains why `text` is not an IPv4 address. */
export function addressFault(text: string): string {
  if (isIpv6(text)) return 'IPv6 is not supported; write an IPv4 address such as "192.0.2.7".';
  const hint =
    parseIpv4Cidr(text) === undefined ? 'four decimal octets without leading zeros' : 'a network goes into cidrs';
  return `Write an IPv4 address such as "192.0.2.7": ${hint}.`;
}

const isIpv6 = (text: string) =>
  /^\[?[0-9a-f]{0,4}:[0-9a-f:.]*[\]%/]?/i.test(text) && text.indexOf(':') !== text.lastIndexOf(':');
