import type { LookupTables } from '#contracts/dns-lookup-tables.js';
import { NameIndex } from './name-index.js';
import { SourceClasses } from './source-classes.js';

/**
 * Decides lookups by the tables of a program (D11). The key of a name is its wire form in lower case, one
 * character for each byte: length byte, label, and so on to the 0 byte of the root:
 * `"\x03api\x07example\x03com\x00"`. A dot inside a label is not a separator. Throws a RangeError if a key is
 * not in this form.
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

  /** The word that decides whether `source` may look up a name. */
  decide(source: number, key: string): number {
    const { classes } = this.#tables;
    const number = this.#sources.of(source);
    const from = classes.offsets[number] as number;
    const to = classes.offsets[number + 1] as number;
    let best = classes.defaults[number] as number;
    if (from === to) return best;
    const count = this.#names.find(key);
    for (let at = 0; at < count; at++) best = this.#better(best, this.#names.found[at] as number, from, to);
    return best;
  }

  /** The numbers of the patterns that match a name, ascending. */
  matching(key: string): readonly number[] {
    const count = this.#names.find(key);
    return this.#names.found.slice(0, count).sort((left, right) => left - right);
  }

  /**
   * The word of the first of the groups `from` … `to` that decides lookups by a pattern, if it is below
   * `best`; else `best`.
   */
  #better(best: number, pattern: number, from: number, to: number): number {
    const { classes, patterns } = this.#tables;
    const end = patterns.offsets[pattern + 1] as number;
    let at = patterns.offsets[pattern] as number;
    let own = from;
    while (at < end && (patterns.words[at] as number) < best) {
      own = firstFrom(classes.groups, own, to, patterns.groups[at] as number);
      if (own === to) break;
      const group = classes.groups[own] as number;
      if (group === patterns.groups[at]) return patterns.words[at] as number;
      at = firstFrom(patterns.groups, at, end, group);
    }
    return best;
  }
}

/** The index from `from`, below `to`, of the first number that is at least `wanted`; else `to`. */
function firstFrom(ascending: Uint32Array, from: number, to: number, wanted: number): number {
  let low = from;
  let step = 1;
  while (low + step <= to && (ascending[low + step - 1] as number) < wanted) {
    low += step;
    step *= 2;
  }
  let high = Math.min(low + step - 1, to);
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ascending[middle] as number) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
