import { itemAt, u32At } from '#arrays/read.js';
import type { LookupTables } from '#contracts/dns/dns-lookup-tables.js';
import type { Intervals } from '#contracts/policy/interval-map.js';
import { valueAt } from '#policy/model/intervals.js';
import { populationOf } from '#policy/model/sources/member-index.js';
import { NameIndex } from './name-index.js';

const SLOT_BITS = 12;

/**
 * Maps a source address to the number of its class (sources with the same groups). Caches the classes of
 * recent source addresses.
 */
class SourceClasses {
  readonly #sources: Intervals;
  /**
   * The source address in each cache slot; 0 marks an unused slot. Address 0 belongs to slot 0 only, and the
   * constructor stores its class there. So `of` cannot confuse an unused slot with a cached address.
   */
  readonly #kept = new Uint32Array(2 ** SLOT_BITS);
  readonly #classes = new Uint32Array(2 ** SLOT_BITS);

  constructor(sources: Intervals) {
    this.#sources = sources;
    this.#classes[0] = valueAt(sources, 0);
  }

  of(source: number): number {
    const slot = Math.imul(source, 0x9e37_79b1) >>> (32 - SLOT_BITS);
    if (this.#kept[slot] !== source) {
      this.#kept[slot] = source;
      this.#classes[slot] = valueAt(this.#sources, source);
    }
    return u32At(this.#classes, slot);
  }
}

/**
 * Decides DNS lookups with the tables of a compiled policy (D11). A key is a name in DNS wire format and
 * lower case, with one character for each byte, such as `"\x03api\x07example\x03com\x00"`. A dot within a
 * label is an ordinary byte. The methods throw a RangeError for a key in another form.
 */
export class LookupIndex {
  readonly #tables: LookupTables;
  readonly #names: NameIndex;
  readonly #sources: SourceClasses;

  constructor(tables: LookupTables) {
    this.#tables = tables;
    this.#names = new NameIndex(tables.names);
    this.#sources = new SourceClasses(tables.sources);
  }

  /**
   * Returns the verdict word that decides whether `source` may look up the name `key`. `source` is an IPv4
   * address, or the number of the class of an IPv6 address. `set` is the index of the set of groups that
   * selects the Kubernetes object that owns the source; undefined if no object owns it.
   */
  decide(source: number, key: string, set?: number): number {
    const { classes, members } = this.#tables;
    const number =
      members === null || set === undefined
        ? this.#sources.of(source)
        : u32At(members.classes, populationOf(members, source, set));
    const from = u32At(classes.offsets, number);
    const to = u32At(classes.offsets, number + 1);
    let best = u32At(classes.defaults, number);
    if (from === to) return best;
    const count = this.#names.find(key);
    for (let at = 0; at < count; at++) best = this.#better(best, itemAt(this.#names.found, at), from, to);
    return best;
  }

  /** Returns the numbers of the hostname patterns that match the name `key`, ascending. */
  matching(key: string): readonly number[] {
    const count = this.#names.find(key);
    return this.#names.found.slice(0, count).sort((left, right) => left - right);
  }

  /**
   * Returns the lower of two verdict words (rank and verdict): `best`, and the word of the first group that
   * decides DNS lookups by `pattern`. Considers only the groups with indexes `from` … `to` - 1 in
   * `classes.groups`.
   */
  #better(best: number, pattern: number, from: number, to: number): number {
    const { classes, patterns } = this.#tables;
    const end = u32At(patterns.offsets, pattern + 1);
    let at = u32At(patterns.offsets, pattern);
    let own = from;
    while (at < end && u32At(patterns.words, at) < best) {
      own = firstFrom(classes.groups, own, to, u32At(patterns.groups, at));
      if (own === to) break;
      const group = u32At(classes.groups, own);
      if (group === patterns.groups[at]) return u32At(patterns.words, at);
      at = firstFrom(patterns.groups, at, end, group);
    }
    return best;
  }
}

/**
 * Searches an ascending array from index `from` up to `to`, which is excluded. Returns the index of the first
 * number that is at least `wanted`, or `to` if all numbers are smaller.
 */
function firstFrom(ascending: Uint32Array, from: number, to: number, wanted: number): number {
  let low = from;
  let step = 1;
  while (low + step <= to && u32At(ascending, low + step - 1) < wanted) {
    low += step;
    step *= 2;
  }
  let high = Math.min(low + step - 1, to);
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (u32At(ascending, middle) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
