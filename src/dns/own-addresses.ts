import { networkInterfaces } from 'node:os';
import { parseIpv4Address } from '#policy/model/ip-address.js';

/** Returns the current IPv4 addresses of this host as numbers in host byte order. */
export function ownAddresses(): ReadonlySet<number> {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return new Set(all.flatMap(({ address }) => parseIpv4Address(address) ?? []));
}
