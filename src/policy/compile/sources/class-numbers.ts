import { addressAfter, ascending, ofFamily } from '#addresses/ip-address.js';
import { u32At } from '#arrays/read.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import { type AddressKey, addressKey } from '#contracts/policy/address-words.js';
import type { Group, Prefix } from '#contracts/policy/policy-model.js';

/**
 * Divides the IPv6 addresses at the bounds of prefixes. Returns the first address of each interval,
 * ascending.
 */
export function classStarts(prefixes: Iterable<Prefix<bigint>>): readonly bigint[] {
  const starts = new Map<AddressKey, bigint>();
  const add = (start: bigint): void => void starts.set(addressKey(start), start);
  add(0n);
  for (const prefix of prefixes) {
    add(prefix.address);
    const after = addressAfter(prefix);
    if (after !== undefined) add(after);
  }
  return ascending([...starts.values()]);
}

/**
 * The address classes of IPv6 in one compiled policy. Parts of the policy that are compiled on their own, and
 * cached, number the classes between their own bounds only. `place` replaces these numbers.
 */
export class ClassNumbers {
  /** The first address of each class, ascending. */
  readonly starts: readonly bigint[];
  readonly #numbers: ReadonlyMap<AddressKey, number>;

  /**
   * Divides the addresses at each bound of a source or destination of the groups, and of the networks of the
   * selector resolution.
   */
  constructor(groups: readonly Group[], { podNetworks, networks }: SelectorResolution) {
    const prefixes: Prefix<bigint>[] = [...ofFamily([...podNetworks, ...[...networks.values()].flat()], 'ipv6')];
    for (const { sources, rules } of groups) {
      for (const prefix of ofFamily(sources, 'ipv6')) prefixes.push(prefix);
      for (const rule of rules) for (const prefix of ofFamily(rule.destinations, 'ipv6')) prefixes.push(prefix);
    }
    this.starts = classStarts(prefixes);
    this.#numbers = new Map(this.starts.map((start, number) => [addressKey(start), number]));
  }

  /**
   * Replaces the numbers in `points` from index `from` up to index `to`, which is excluded. Each number is an
   * index in `own`, and becomes the number of the class that begins with the same address.
   */
  place(points: Uint32Array, from: number, to: number, own: readonly bigint[]): void {
    for (let at = from; at < to; at++) points[at] = this.#numberOf(own[u32At(points, at)]);
  }

  #numberOf(start: bigint | undefined): number {
    const number = start === undefined ? undefined : this.#numbers.get(addressKey(start));
    if (number === undefined) throw new RangeError(`no address class begins with ${start}`);
    return number;
  }
}
