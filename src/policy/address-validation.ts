import { parseAddress, parseCidr } from './ipv4.js';
import type { Validation } from './validation.js';

export function validateCidrs(cidrs: readonly (string | undefined)[], at: string, { problems }: Validation): void {
  for (let index = 0; index < cidrs.length; index++) {
    const cidr = cidrs[index];
    if (cidr === undefined || parseCidr(cidr) !== undefined) continue;
    const message = 'Write an IPv4 network such as "192.0.2.0/24": four decimal octets, "/", and 0 to 32.';
    problems.add(`${at}/${index}`, 'invalid_cidr', message);
  }
}

export function validateAddresses(ips: readonly (string | undefined)[], at: string, { problems }: Validation): void {
  for (let index = 0; index < ips.length; index++) {
    const ip = ips[index];
    if (ip === undefined || parseAddress(ip) !== undefined) continue;
    const hint =
      parseCidr(ip) === undefined ? 'four decimal octets without leading zeros' : 'a network goes into cidrs';
    problems.add(`${at}/${index}`, 'invalid_address', `Write an IPv4 address such as "192.0.2.7": ${hint}.`);
  }
}
