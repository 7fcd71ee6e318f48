import type { Schemas } from './api/client.js';

export type AddressSet = Schemas['AddressSet'];

/** The networks that texts name by words, as the command line does. */
const NAMES: Readonly<Record<string, string>> = { '0.0.0.0/0': 'any', '::/0': 'any IPv6' };
const hostLength = (address: string) => (address.includes(':') ? '/128' : '/32');

function network(text: string): string {
  const length = hostLength(text);
  return NAMES[text] ?? (text.endsWith(length) ? text.slice(0, -length.length) : text);
}

/** An address or a network, as a network. */
export const asNetwork = (text: string): string => (text.includes('/') ? text : `${text}${hostLength(text)}`);

/** Returns a set of addresses as text, such as "10.1.0.0/24 except 10.1.0.0/29". */
export function addressesText({ networks, except, omitted }: AddressSet): string {
  const list = networks.map(network).join(', ');
  const more = omitted > 0 ? ` and ${omitted} more` : '';
  return except.length === 0 ? `${list}${more}` : `${list} except ${except.map(network).join(', ')}${more}`;
}
