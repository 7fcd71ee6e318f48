import { networkInterfaces } from 'node:os';
import { parseAddress, parseCidr } from '#addresses/ip-address.js';
import type { Address, Prefix } from '#contracts/policy/policy-model.js';

/** Returns the current addresses of this host, of both families. */
export function ownAddresses(): ReadonlySet<Address> {
  return new Set(interfaceAddresses().flatMap(({ address }) => parseAddress(address) ?? []));
}

/**
 * Returns the current IPv6 networks of this host: the prefixes of its addresses, except those of one address.
 */
export function ownIpv6Networks(): readonly Prefix<bigint>[] {
  return interfaceAddresses().flatMap(({ cidr }) => {
    const prefix = cidr === null ? undefined : parseCidr(cidr)?.prefix;
    const isNetwork = prefix !== undefined && typeof prefix.address === 'bigint' && prefix.length < 128;
    return isNetwork ? [prefix as Prefix<bigint>] : [];
  });
}

const interfaceAddresses = () => Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
