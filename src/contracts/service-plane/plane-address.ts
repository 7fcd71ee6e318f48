import type { Address, Family } from '#contracts/policy/policy-model.js';

/** The IPv4 address and the port of the service plane (TLS and HTTP inspection), in host byte order. */
export type PlaneListen = { readonly address: number; readonly port: number };

/**
 * The address where the service plane listens for IPv6 connections, at the same port: 100::443, of a prefix
 * that no route leads to (RFC 6666). So no host reaches the listener directly, and no other service uses the
 * address.
 */
const IPV6_ADDRESS = (0x100n << 112n) | 0x443n;

/** Returns the address where the service plane listens for the connections of a family. */
export function planeAddress({ address }: PlaneListen, family: Family): Address {
  return family === 'ipv4' ? address : IPV6_ADDRESS;
}
