import { DENY_ONLY_MEMBER, type SelectorSet } from '#contracts/kubernetes/membership.js';
import type { Address } from '#contracts/policy/policy-model.js';

/**
 * A set of selectors. `uses`: the number of addresses with the set. `last`: the address that had this set
 * last; undefined if that address lost the set because the selectors of policies changed.
 */
export type CountedSet = SelectorSet & { uses: number; last?: Address | undefined };

/**
 * The limit for sets that no address has, where a set of `n` keys counts as `n + 1`. They are kept so that a
 * deployment gets the same set of selectors again after it was scaled to zero.
 */
const MAX_UNUSED = 65_536;

/** Gives each set of selectors a number, which is never used for another set. */
export class SelectorSets {
  /**
   * The set of selectors of objects for which selectors cannot be evaluated. `uses` begins with 1, so that
   * the set is never unused.
   */
  readonly denyOnly: CountedSet = { ...DENY_ONLY_MEMBER, uses: 1 };
  readonly #byKeys = new Map<string, CountedSet>();
  /** Sets of selectors that select no address any more, ordered by the time when that began. */
  readonly #unused = new Set<CountedSet>();
  #unusedSize = 0;
  #last = 0;
  /** The sets of selectors that were made after the last call of `drainAdded`. */
  #added: CountedSet[] = [];
  readonly #maxUnused: number;

  constructor(maxUnused = MAX_UNUSED) {
    this.#maxUnused = maxUnused;
  }

  /** Returns the set of selectors with these sorted keys. The caller must call `use` for it. */
  of(keys: readonly string[]): CountedSet {
    // A key is JSON text, so it contains no line feed.
    const text = keys.join('\n');
    const known = this.#byKeys.get(text);
    if (known !== undefined) return known;
    const set: CountedSet = { number: ++this.#last, keys, uses: 0 };
    this.#byKeys.set(text, set);
    this.#added.push(set);
    return set;
  }

  use(set: CountedSet): void {
    if (set.uses++ === 0 && this.#unused.delete(set)) this.#unusedSize -= set.keys.length + 1;
  }

  /** Must be called when an address no longer has the set; `address` is stored as `CountedSet.last`. */
  release(set: CountedSet, address: Address | undefined): void {
    set.last = address;
    if (--set.uses > 0) return;
    this.#unused.add(set);
    this.#unusedSize += set.keys.length + 1;
  }

  /** Returns the sets of selectors that were made after the last call. */
  drainAdded(): readonly CountedSet[] {
    const added = this.#added;
    this.#added = [];
    return added;
  }

  /** Removes unused sets (those that select no address) above `MAX_UNUSED`, and returns their numbers. */
  drop(): readonly number[] {
    const dropped: number[] = [];
    for (const set of this.#unused) {
      if (this.#unusedSize <= this.#maxUnused) break;
      this.#unused.delete(set);
      this.#unusedSize -= set.keys.length + 1;
      this.#byKeys.delete(set.keys.join('\n'));
      dropped.push(set.number);
    }
    return dropped;
  }

  /** Makes `lastUnused` omit the sets that no address has now, because they may lack a new selector. */
  forgetLast(): void {
    for (const set of this.#unused) set.last = undefined;
  }

  /** Returns the sets of selectors that became unused last, each with the last address that had it. */
  lastUnused(most: number): readonly (readonly [address: Address, set: number])[] {
    const found = [...this.#unused].flatMap(({ number, last }) =>
      last === undefined ? [] : [[last, number] as const],
    );
    return found.slice(-most);
  }

  /** Returns all sets of selectors, also those that select no address. */
  all(): IterableIterator<CountedSet> {
    return this.#byKeys.values();
  }
}
