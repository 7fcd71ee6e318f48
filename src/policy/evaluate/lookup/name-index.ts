import { u8At, u32At } from '#arrays/read.js';
import { textAt } from '#arrays/texts.js';
import type { NameTables } from '#contracts/dns/dns-lookup-tables.js';
import { NONE } from '#contracts/policy/program.js';
import { searchedText } from '#policy/model/names/hostname.js';
import { HASH_OF_END, hashWith, slotOf } from '#policy/model/names/name-hash.js';
import { RegexSet } from '#policy/model/names/regex.js';

const KEPT_NAMES = 65_536;
/** The maximum length of a DNS name in bytes (RFC 1035, 3.1). */
const MAX_BYTES = 255;

/** Finds the hostname patterns that match a name, with the tables of a compiled policy. */
export class NameIndex {
  /** Only the first n elements are valid, where n is the result of the last call of `find`. */
  readonly found: number[] = [];
  readonly #tables: NameTables;
  readonly #regexes: RegexSet;
  /** The byte offset of each label in the name of the last `find`. */
  readonly #starts = new Uint8Array(MAX_BYTES);
  /**
   * A cache from names to the numbers of the regular expressions that match them. When `#young` is full, it
   * becomes `#old`, and the previous `#old` is discarded. So names that were not searched for a long time
   * disappear from the cache.
   */
  #young = new Map<string, readonly number[]>();
  #old = new Map<string, readonly number[]>();

  constructor(tables: NameTables) {
    this.#tables = tables;
    const { numbers, texts } = tables.regexes;
    const sources = Array.from(numbers, (_number, at) => textAt(texts, at));
    this.#regexes = new RegexSet(sources, { caseInsensitive: true });
  }

  /** Writes the numbers of the patterns that match the name `key` to `found`. Returns how many match. */
  find(key: string): number {
    const { any, exact, suffixes, regexes } = this.#tables;
    const labels = this.#cut(key);
    let count = 0;
    let hash = hashWith(HASH_OF_END, 0);
    let at = key.length - 1;
    for (let label = labels - 1; label >= 0; label--) {
      const start = u8At(this.#starts, label);
      while (at > start) hash = hashWith(hash, key.charCodeAt(--at));
      const number = this.#patternAt(label === 0 ? exact : suffixes, hash >>> 0, key, start);
      if (number !== NONE) this.found[count++] = number;
    }
    if (any !== NONE) this.found[count++] = any;
    if (regexes.numbers.length > 0) {
      for (const number of this.#matchingRegexes(key)) this.found[count++] = number;
    }
    return count;
  }

  /** Writes the byte offset of each label of `key` to `#starts`, and returns the number of labels. */
  #cut(key: string): number {
    if (key.length > MAX_BYTES) throw new RangeError(`search a DNS name: it is longer than ${MAX_BYTES} bytes`);
    let labels = 0;
    let at = 0;
    for (let length = key.charCodeAt(0); length > 0; length = key.charCodeAt(at)) {
      this.#starts[labels++] = at;
      at += length + 1;
    }
    if (at !== key.length - 1) throw new RangeError('search a DNS name: it is not in wire format');
    return labels;
  }

  #patternAt(slots: Uint32Array, hash: number, key: string, start: number): number {
    const count = slots.length / 2;
    for (let slot = slotOf(hash, count); ; slot = (slot + 1) & (count - 1)) {
      const number = u32At(slots, 2 * slot + 1);
      if (number === NONE || (slots[2 * slot] === hash && this.#isNamed(number, key, start))) return number;
    }
  }

  /** Whether the name of pattern `number` equals `key` from byte `start` on. */
  #isNamed(number: number, key: string, start: number): boolean {
    const { bytes, offsets } = this.#tables.wires;
    const first = u32At(offsets, number);
    const length = u32At(offsets, number + 1) - first;
    if (length !== key.length - start) return false;
    for (let at = 0; at < length; at++) if (bytes[first + at] !== key.charCodeAt(start + at)) return false;
    return true;
  }

  #matchingRegexes(key: string): readonly number[] {
    const young = this.#young.get(key);
    if (young !== undefined) return young;
    const numbers = this.#old.get(key) ?? this.#search(key);
    if (this.#young.size === KEPT_NAMES / 2) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    this.#young.set(key, numbers);
    return numbers;
  }

  #search(key: string): readonly number[] {
    const labels: string[] = [];
    for (let at = 0; at < key.length - 1; at += key.charCodeAt(at) + 1) {
      labels.push(key.slice(at + 1, at + 1 + key.charCodeAt(at)));
    }
    const { numbers } = this.#tables.regexes;
    return this.#regexes.matching(searchedText(labels)).map((place) => u32At(numbers, place));
  }
}
