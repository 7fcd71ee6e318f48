import type { KvStore } from '#store/store-types.js';
import { readSortKey } from './index-keys.js';

const FIRST_PAGE = 32;
const LARGEST_PAGE = 256;

/** A range of places from `from` (inclusive) to `to` (exclusive). A place is the sort key of a finding. */
export type PlaceRange = { readonly from: string; readonly to: string };

/**
 * Walks over the index keys that begin with one prefix, in the order of the findings' places. Reads the keys
 * from the store in pages; each page is larger than the previous one, up to `LARGEST_PAGE` keys.
 */
class IndexPart {
  readonly #kv: KvStore;
  readonly #prefix: string;
  readonly #range: PlaceRange;
  #from: string;
  #page: string[] = [];
  #at = 0;
  #size = FIRST_PAGE;
  #ended = false;

  constructor(kv: KvStore, prefix: string, range: PlaceRange) {
    this.#kv = kv;
    this.#prefix = prefix;
    this.#range = range;
    this.#from = range.from;
  }

  /**
   * The place (sort key) of the finding at which the walk now stands. Undefined when the walk has passed the
   * last finding.
   */
  get first(): string | undefined {
    return this.#page[this.#at];
  }

  async advance(): Promise<void> {
    this.#at += 1;
    if (this.#at >= this.#page.length) await this.fill();
  }

  async fill(): Promise<void> {
    if (this.#ended) return;
    const range = { gte: this.#prefix + this.#from, lt: this.#prefix + this.#range.to, limit: this.#size };
    this.#page = [];
    this.#at = 0;
    for await (const [key] of this.#kv.iterate(range)) this.#page.push(key.slice(this.#prefix.length));
    this.#ended = this.#page.length < this.#size;
    this.#from = `${this.#page.at(-1)}\0`;
    this.#size = Math.min(LARGEST_PAGE, this.#size * 2);
  }

  /**
   * An estimate of the number of findings in the range. Assumes that the whole range has as many findings per
   * millisecond as the first page.
   */
  get estimate(): number {
    const [first, last] = [this.#page[0], this.#page.at(-1)];
    if (this.#ended || first === undefined || last === undefined) return this.#page.length;
    const covered = 1 + readSortKey(first).lastMs - readSortKey(last).lastMs;
    const all = 1 + readSortKey(first).lastMs - Math.max(0, readSortKey(this.#range.to).lastMs);
    return this.#page.length * Math.max(1, all / covered);
  }
}

/**
 * Merges the walks over several index key prefixes into one walk in the order of the findings' places. No
 * finding may have keys under two of these prefixes, because the walk would return the finding twice.
 */
export class IndexWalk {
  readonly #parts: readonly IndexPart[];

  constructor(kv: KvStore, prefixes: readonly string[], range: PlaceRange) {
    this.#parts = prefixes.map((prefix) => new IndexPart(kv, prefix, range));
  }

  async open(): Promise<this> {
    for (const part of this.#parts) await part.fill();
    return this;
  }

  get estimate(): number {
    return this.#parts.reduce((sum, { estimate }) => sum + estimate, 0);
  }

  get ended(): boolean {
    return this.#parts.every(({ first }) => first === undefined);
  }

  /**
   * Returns the places (sort keys) of the next findings of the walk, at most `limit`, and moves the walk past
   * these findings.
   */
  async take(limit: number): Promise<string[]> {
    const places: string[] = [];
    while (places.length < limit) {
      const next = this.#foremost();
      if (next?.first === undefined) break;
      places.push(next.first);
      await next.advance();
    }
    return places;
  }

  #foremost(): IndexPart | undefined {
    let foremost: IndexPart | undefined;
    for (const part of this.#parts) {
      if (part.first !== undefined && (foremost?.first === undefined || part.first < foremost.first)) foremost = part;
    }
    return foremost;
  }
}
