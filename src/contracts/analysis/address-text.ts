import type { AddressSet } from './flow-region.js';

/** The networks that texts name by words. */
const NAMES: ReadonlyMap<string, string> = new Map([
  ['0.0.0.0/0', 'any'],
  ['::/0', 'any IPv6'],
]);

/**
 * Returns a set of addresses as text, such as `any except 10.0.0.0/8`. `any` is every IPv4 address, and
 * `any IPv6` every IPv6 address. A network of one address is written as the address.
 */
export function addressText({ networks, except, omitted }: AddressSet): string {
  const more = omitted > 0 ? ` and ${omitted} more` : '';
  const text = networks.map(networkText).join(', ');
  return except.length === 0 ? `${text}${more}` : `${text} except ${except.map(networkText).join(', ')}${more}`;
}

const networkText = (network: string): string =>
  NAMES.get(network) ?? network.replace(network.includes(':') ? /\/128$/ : /\/32$/, '');
