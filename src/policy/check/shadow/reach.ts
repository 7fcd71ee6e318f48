import { addressAfter, ascending, bitsOf } from '#addresses/ip-address.js';
import { i32At } from '#arrays/read.js';
import type { Address, Group, Policy, Prefix } from '#contracts/policy/policy-model.js';
import { factsOfGroups } from '#policy/evaluate/rule-facts.js';

/**
 * Returns the indexes of the groups that no packet reaches. All sources of such a group are in earlier groups
 * with a default action or with a rule that matches every packet. A selector may resolve to any address, so a
 * group with selectors is unreachable only if earlier groups cover all addresses.
 */
export function unreachableGroups({ groups }: Policy): ReadonlySet<number> {
  const found = new Set<number>();
  const facts = factsOfGroups(groups);
  const isClosed = ({ defaultAction }: Group, index: number): boolean =>
    defaultAction !== undefined || facts[index]?.hasCatchAll === true;
  if (!groups.some(isClosed)) return found;
  const families = familiesOf(groups).map((first) => new Addresses(groups, first));
  for (const [index, group] of groups.entries()) {
    if (families.every((addresses) => addresses.allClosed(group))) found.add(index);
    else if (isClosed(group, index)) for (const addresses of families) addresses.close(group);
  }
  return found;
}

/** Returns the first address of IPv4, and of IPv6 if a group has an IPv6 source. */
function familiesOf(groups: readonly Group[]): readonly Address[] {
  const hasIpv6 = groups.some(({ sources }) => sources.some(({ address }) => typeof address === 'bigint'));
  return hasIpv6 ? [0, 0n] : [0];
}

/**
 * The addresses of one family, divided into intervals at every bound of a source prefix. An interval is
 * closed if an earlier group decides all its packets. A search skips closed intervals through `#next`, a
 * union-find structure.
 */
class Addresses {
  readonly #bits: number;
  /** The first address of each interval, ascending. */
  readonly #starts: readonly Address[];
  readonly #next: Int32Array;

  constructor(groups: readonly Group[], first: Address) {
    this.#bits = bitsOf(first);
    const starts = new Set([first]);
    for (const { sources } of groups) {
      for (const source of this.#ofFamily(sources)) {
        starts.add(source.address);
        starts.add(addressAfter(source) ?? first);
      }
    }
    this.#starts = ascending([...starts]);
    this.#next = Int32Array.from({ length: starts.size + 1 }, (_, index) => index);
  }

  allClosed({ sources, selectors }: Group): boolean {
    if (selectors.length > 0) return this.#open(0) === this.#starts.length;
    return this.#ofFamily(sources).every((source) => this.#open(this.#first(source)) >= this.#end(source));
  }

  close({ sources }: Group): void {
    for (const source of this.#ofFamily(sources)) {
      const end = this.#end(source);
      for (let at = this.#open(this.#first(source)); at < end; at = this.#open(at)) this.#next[at] = at + 1;
    }
  }

  #ofFamily(sources: readonly Prefix[]): readonly Prefix[] {
    return sources.filter(({ address }) => bitsOf(address) === this.#bits);
  }

  /** Returns the index of the first interval of a prefix. */
  #first({ address }: Prefix): number {
    return this.#intervalAt(address);
  }

  /** Returns the index of the first interval after a prefix. */
  #end(source: Prefix): number {
    const after = addressAfter(source);
    return after === undefined ? this.#starts.length : this.#intervalAt(after);
  }

  /** Returns the index of the first interval at or after `from` that is not closed. */
  #open(from: number): number {
    let root = from;
    while (this.#next[root] !== root) root = i32At(this.#next, root);
    for (let at = from; at !== root; ) {
      const next = i32At(this.#next, at);
      this.#next[at] = root;
      at = next;
    }
    return root;
  }

  /** Returns the index of the interval that begins with an address. */
  #intervalAt(address: Address): number {
    let low = 0;
    let high = this.#starts.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#starts[middle] ?? 0) < address) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
