import type { Prefix } from '#contracts/policy/policy-model.js';
import { covers, parseIpv4Cidr } from '#policy/model/ip-address.js';

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
] as const;

/**
 * Blocks of the IANA IPv4 Special-Purpose Address Registry (RFC 6890, RFC 8190) whose column "Globally
 * Reachable" is not True, besides the blocks of `NEVER_REMOTE`.
 * - 192.0.0.0/29, 192.0.0.8, 192.0.0.170, 192.0.0.171 and 192.88.99.2 are omitted because a larger block in
 *   this list contains them.
 * - 192.31.196.0/24, 192.52.193.0/24 and 192.175.48.0/24 are omitted because the registry marks them
 *   reachable.
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
] as const;

/** Globally reachable addresses inside blocks of `NOT_REACHABLE`: the anycast addresses of PCP and TURN. */
const REACHABLE = prefixes('192.0.0.9/32', '192.0.0.10/32');

const BLOCKS = [blocks(NEVER_REMOTE, true), blocks(NOT_REACHABLE, false)].flat();

/** Returns the special-purpose block that contains the address. Returns null for a public address. */
export function specialBlockOf(address: number): SpecialBlock | null {
  if (REACHABLE.some((part) => covers(part, address))) return null;
  return BLOCKS.find(({ prefix }) => covers(prefix, address)) ?? null;
}

function blocks(
  list: readonly (readonly [text: string, name: string])[],
  isAlwaysRemoved: boolean,
): readonly (SpecialBlock & { readonly prefix: Prefix<number> })[] {
  return list.flatMap(([text, name]) => prefixes(text).map((prefix) => ({ prefix, name, isAlwaysRemoved })));
}

function prefixes(...texts: readonly string[]): readonly Prefix<number>[] {
  return texts.map((text) => {
    const parsed = parseIpv4Cidr(text);
    if (parsed === undefined) throw new RangeError(`${text} is not an IPv4 network in CIDR notation`);
    return parsed.prefix;
  });
}
