import { f64At, i32At } from '#arrays/read.js';
import type { Group, Policy } from '#contracts/policy/policy-model.js';
import { factsOfGroups } from '#policy/evaluate/rule-facts.js';
import { boundsOf } from '#policy/model/rules/rule-coverage.js';

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
  const addresses = new Addresses(groups);
  for (const [index, group] of groups.entries()) {
    if (addresses.allClosed(group)) found.add(index);
    else if (isClosed(group, index)) addresses.close(group);
  }
  return found;
}

/**
 * The IPv4 address space, divided into intervals at every bound of a source prefix. An interval is closed if
 * an earlier group decides all its packets. A search skips closed intervals through `#next`, a union-find
 * structure.
 */
class Addresses {
  readonly #cuts: Float64Array;
  readonly #next: Int32Array;

  constructor(groups: readonly Group[]) {
    const cuts = new Set([0, 2 ** 32]);
    for (const { sources } of groups) {
      for (const source of sources) {
        const { start, end } = boundsOf(source);
        cuts.add(start);
        cuts.add(end);
      }
    }
    this.#cuts = Float64Array.from(cuts).sort();
    this.#next = Int32Array.from(this.#cuts, (_, index) => index);
  }

  allClosed({ sources, selectors }: Group): boolean {
    if (selectors.length > 0) return this.#open(0) === this.#cuts.length - 1;
    return sources.every((source) => {
      const { start, end } = boundsOf(source);
      return this.#open(this.#cut(start)) >= this.#cut(end);
    });
  }

  close({ sources }: Group): void {
    for (const source of sources) {
      const { start, end } = boundsOf(source);
      const last = this.#cut(end);
      for (let at = this.#open(this.#cut(start)); at < last; at = this.#open(at)) this.#next[at] = at + 1;
    }
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

  #cut(address: number): number {
    let low = 0;
    let high = this.#cuts.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (f64At(this.#cuts, middle) < address) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
