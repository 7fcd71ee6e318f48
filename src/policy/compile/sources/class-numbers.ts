import { u32At } from '#arrays/read.js';
import type { Group, Prefix } from '#contracts/policy/policy-model.js';
import { addressAfter, ascending, ofFamily } from '#policy/model/ip-address.js';

/**
 * Divides the IPv6 addresses at the bounds of prefixes. Returns the first address of each interval,
 * ascending.
 */
export function classStarts(prefixes: Iterable<Prefix<bigint>>): readonly bigint[] {
  const starts = new Set([0n]);
  for (const prefix of prefixes) {
    starts.add(prefix.address);
    const after = addressAfter(prefix);
    if (after !== undefined) starts.add(after);
  }
  return ascending([...starts]);
}

/**
 * The address classes of IPv6 in one compiled policy. Parts of the policy that are compiled on their own, and
 * cached, number the classes between their own bounds only. `place` replaces these numbers.
 */
export class ClassNumbers {
  /** The first address of each class, ascending. */
  readonly starts: readonly bigint[];
  readonly #numbers: ReadonlyMap<bigint, number>;

  /** Divides the addresses at each bound of a source or destination of the groups. */
  constructor(groups: readonly Group[]) {
    const prefixes: Prefix<bigint>[] = [];
    for (const { sources, rules } of groups) {
      for (const prefix of ofFamily(sources, 'ipv6')) prefixes.push(prefix);
      for (const rule of rules) for (const prefix of ofFamily(rule.destinations, 'ipv6')) prefixes.push(prefix);
    }
    this.starts = classStarts(prefixes);
    this.#numbers = new Map(this.starts.map((start, number) => [start, number]));
  }

  /**
   * Replaces the numbers in `points` from index `from` up to index `to`, which is excluded. Each number is an
   * index in `own`, and becomes the number of the class that begins with the same address.
   */
  place(points: Uint32Array, from: number, to: number, own: readonly bigint[]): void {
    for (let at = from; at < to; at++) points[at] = this.#numberOf(own[u32At(points, at)]);
  }

  #numberOf(start: bigint | undefined): number {
    const number = start === undefined ? undefined : this.#numbers.get(start);
    if (number === undefined) throw new RangeError(`no address class begins with ${start}`);
    return number;
  }
}
