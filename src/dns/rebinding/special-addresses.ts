import { covers, familyOf, parseCidr } from '#addresses/ip-address.js';
import type { Address, Prefix } from '#contracts/policy/policy-model.js';

/**
 * A special-purpose address block. `isAlwaysRemoved`: the rebinding protection removes addresses of this
 * block from answers for every name, not only for public names. `name` is a text for findings.
 */
export type SpecialBlock = { readonly name: string; readonly isAlwaysRemoved: boolean };

const NEVER_REMOTE = [
  ['0.0.0.0/8', 'this_network'],
  ['127.0.0.0/8', 'loopback'],
  ['169.254.0.0/16', 'link_local'],
  ['224.0.0.0/4', 'multicast'],
  ['240.0.0.0/4', 'reserved'],
  ['::/128', 'unspecified'],
  ['::1/128', 'loopback'],
  ['::ffff:0:0/96', 'ipv4_mapped'],
  ['fe80::/10', 'link_local'],
  ['ff00::/8', 'multicast'],
] as const;

/**
 * Blocks of the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, RFC 8190) whose column
 * "Globally Reachable" is not True, besides the blocks of `NEVER_REMOTE`.
 * - 192.0.0.0/29, 192.0.0.8, 192.0.0.170, 192.0.0.171 and 192.88.99.2 are omitted because a larger block in
 *   this list contains them. So are the blocks in 2001::/23, such as Teredo and benchmarking.
 * - 192.31.196.0/24, 192.52.193.0/24, 192.175.48.0/24 and 2620:4f:8000::/48 are omitted because the registry
 *   marks them reachable.
 * - Site-local addresses are not in the registry. RFC 3879 deprecates them.
 */
const NOT_REACHABLE = [
  ['10.0.0.0/8', 'private_use'],
  ['100.64.0.0/10', 'shared_address_space'],
  ['172.16.0.0/12', 'private_use'],
  ['192.0.0.0/24', 'ietf_protocol_assignments'],
  ['192.0.2.0/24', 'documentation'],
  ['192.88.99.0/24', 'deprecated_6to4_relay'],
  ['192.168.0.0/16', 'private_use'],
  ['198.18.0.0/15', 'benchmarking'],
  ['198.51.100.0/24', 'documentation'],
  ['203.0.113.0/24', 'documentation'],
  ['64:ff9b:1::/48', 'local_use_translation'],
  ['100::/64', 'discard_only'],
  ['100:0:0:1::/64', 'dummy_prefix'],
  ['2001::/23', 'ietf_protocol_assignments'],
  ['2001:db8::/32', 'documentation'],
  ['2002::/16', 'deprecated_6to4'],
  ['3fff::/20', 'documentation'],
  ['5f00::/16', 'segment_routing'],
  ['fc00::/7', 'unique_local'],
  ['fec0::/10', 'site_local'],
] as const;

/** The blocks outside of 2000::/3, the only block from which IANA allocates global unicast addresses. */
const UNALLOCATED = [
  ['::/3', 'reserved'],
  ['4000::/2', 'reserved'],
  ['8000::/1', 'reserved'],
] as const;

/**
 * Globally reachable addresses inside blocks of `NOT_REACHABLE`: the anycast addresses of PCP, TURN and
 * DNS-SD, AMT, AS112, ORCHIDv2 and remote identification of drones.
 */
const REACHABLE = prefixes(
  '192.0.0.9/32',
  '192.0.0.10/32',
  '2001:1::1/128',
  '2001:1::2/128',
  '2001:1::3/128',
  '2001:3::/32',
  '2001:4:112::/48',
  '2001:20::/28',
  '2001:30::/28',
);

const BLOCKS = [blocks(NEVER_REMOTE, true), blocks(NOT_REACHABLE, false), blocks(UNALLOCATED, true)].flat();

/**
 * The well-known prefix of NAT64: a translator sends packets to the IPv4 address in the last 32 bits (RFC
 * 6052).
 */
const NAT64: Prefix<bigint> = { address: 0x64_ff9bn << 96n, length: 96 };

/**
 * Returns the addresses that a packet to `address` can reach: the address itself, and the IPv4 address in an
 * address of the well-known NAT64 prefix.
 */
export function reachedBy(address: Address): readonly Address[] {
  return typeof address === 'bigint' && covers(NAT64, address)
    ? [address, Number(BigInt.asUintN(32, address))]
    : [address];
}

/** Returns the special-purpose block that contains the address. Returns null for a public address. */
export function specialBlockOf(address: Address): SpecialBlock | null {
  if (typeof address === 'bigint' && covers(NAT64, address)) return null;
  const isIn = (prefix: Prefix): boolean => familyOf(prefix.address) === familyOf(address) && covers(prefix, address);
  if (REACHABLE.some(isIn)) return null;
  return BLOCKS.find(({ prefix }) => isIn(prefix)) ?? null;
}

function blocks(
  list: readonly (readonly [text: string, name: string])[],
  isAlwaysRemoved: boolean,
): readonly (SpecialBlock & { readonly prefix: Prefix })[] {
  return list.flatMap(([text, name]) => prefixes(text).map((prefix) => ({ prefix, name, isAlwaysRemoved })));
}

function prefixes(...texts: readonly string[]): readonly Prefix[] {
  return texts.map((text) => {
    const parsed = parseCidr(text);
    if (parsed === undefined) throw new RangeError(`${text} is not a network in CIDR notation`);
    return parsed.prefix;
  });
}
