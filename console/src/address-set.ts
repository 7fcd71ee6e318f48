import type { Schemas } from './api/client.js';

export type AddressSet = Schemas['AddressSet'];

const network = (text: string) => (text === '0.0.0.0/0' ? 'any' : text.replace(/\/32$/, ''));

/** "10.1.0.0/24 except 10.1.0.0/29". */
export function addressesText({ networks, except, omitted }: AddressSet): string {
  const list = networks.map(network).join(', ');
  const more = omitted > 0 ? ` and ${omitted} more` : '';
  return except.length === 0 ? `${list}${more}` : `${list} except ${except.map(network).join(', ')}${more}`;
}
