import { bitsOf, covers, formatAddress, parseAddress, parseCidr } from '#addresses/ip-address.js';
import type { Prefix } from '#contracts/policy/policy-model.js';

/**
 * Parses an address, or an address with a prefix length. Clears the bits after the prefix. Returns undefined
 * if the text is neither.
 */
export function readNetwork(text: string): Prefix | undefined {
  return parseCidr(text)?.prefix;
}

export function isWithin(network: Prefix, address: string): boolean {
  const value = parseAddress(address);
  return value !== undefined && covers(network, value);
}

/**
 * Returns the address of a network that contains only one address. Returns undefined if the network contains
 * several addresses.
 */
export function onlyAddress({ address, length }: Prefix): string | undefined {
  return length === bitsOf(address) ? formatAddress(address) : undefined;
}
