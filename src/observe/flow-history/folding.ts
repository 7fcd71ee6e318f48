import { mask } from '#addresses/ip-address.js';
import { u32At } from '#arrays/read.js';
import { FOLDED_DESTINATION, FOLDED_LENGTHS, FOLDED_SOURCE } from '#contracts/analysis/seen-flows.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';

/**
 * How keys of flows become the key of one row: the bits that they keep, and the bit of the service that marks
 * such a row.
 */
export type Folding = { readonly masks: Uint32Array; readonly mark: number };

/** The bits of a service without the port, or ICMP type and code. */
const PROTOCOL = 0xff_0000;

function folding(family: Family, isSourceFolded: boolean, isDestinationFolded: boolean): Folding {
  const words = ADDRESS_WORDS[family];
  const { source, destination } = FOLDED_LENGTHS[family];
  const masks = new Uint32Array(2 * words + 1).fill(0xffff_ffff);
  const keep = (from: number, length: number): void => {
    for (let word = 0; word < words; word++)
      masks[from + word] = mask(0xffff_ffff, Math.max(0, Math.min(32, length - 32 * word)));
  };
  if (isSourceFolded) keep(0, source);
  if (isDestinationFolded) keep(words, destination);
  if (isDestinationFolded) masks[2 * words] = PROTOCOL;
  return { masks, mark: (isSourceFolded ? FOLDED_SOURCE : 0) + (isDestinationFolded ? FOLDED_DESTINATION : 0) };
}

/**
 * The foldings of each family. A source gets rows by the first one until it has used its share, then by the
 * next one.
 *
 * A host has any number of IPv6 addresses in its /64 prefix. So the share of an IPv6 source is that of its
 * prefix, and its flows first lose the rest of the source address. Policies name hosts with temporary
 * addresses by their prefix, so such a row says as much about a change as the rows that it replaces.
 */
export const FOLDINGS: Readonly<Record<Family, readonly Folding[]>> = {
  ipv4: [folding('ipv4', false, false), folding('ipv4', false, true)],
  ipv6: [folding('ipv6', false, false), folding('ipv6', true, false), folding('ipv6', true, true)],
};

/** Writes the key of the row for a flow to `into`, and returns it. */
export function foldedKey(key: Uint32Array, { masks, mark }: Folding, into: Uint32Array): Uint32Array {
  const service = key.length - 1;
  for (let at = 0; at < key.length; at++) into[at] = u32At(key, at) & u32At(masks, at);
  into[service] = u32At(into, service) + mark;
  return into;
}

/** Returns the index of the folding of a row. */
export function foldingOf(service: number, family: Family): number {
  const mark = service - (service % FOLDED_SOURCE);
  return FOLDINGS[family].findIndex((each) => each.mark === mark);
}

/** Returns the part of a source that shares rows: an IPv4 address, or the /64 prefix of an IPv6 address. */
export function sharerOf(key: Uint32Array, family: Family): Address {
  const first = u32At(key, 0);
  return family === 'ipv4' ? first : (BigInt(first) << 32n) | BigInt(u32At(key, 1));
}
