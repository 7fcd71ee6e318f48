import { networkInterfaces } from 'node:os';
import { parseAddress } from '#policy/model/ipv4.js';

/** Returns the current IPv4 addresses of this host as numbers in host byte order. */
export function ownAddresses(): ReadonlySet<number> {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return new Set(all.flatMap(({ address }) => parseAddress(address) ?? []));
}
