import { u32At } from '#arrays/read.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Intervals } from '#contracts/policy/interval-map.js';
import type { AddressClasses } from '#contracts/policy/program.js';
import type { Lines } from './cache-lines.js';
import { addTree } from './tree.js';

const WORDS = ADDRESS_WORDS.ipv6;

/**
 * Bit of a value in a tree of the address classes: the other bits are the ref of a tree for the next word of
 * the address. Without the bit, the value is the number of the class plus 1, since 0 means a damaged image.
 */
export const NEXT_WORD = 0x8000_0000;

/**
 * Adds search trees that map an IPv6 address to the number of its class. The tree of the first word of the
 * address leads to trees of the next words where the first word does not decide. Returns the ref of the first
 * tree.
 */
export function addClassTree(lines: Lines, { starts }: AddressClasses): number {
  return addWordTree(lines, starts, 0, 0, starts.length / WORDS);
}

/**
 * Adds the tree of one word (0 is the highest) for the classes from number `from` up to number `to`, which is
 * excluded. The first addresses of these classes have the same words before this word.
 */
function addWordTree(lines: Lines, starts: Uint32Array, word: number, from: number, to: number): number {
  const wordOf = (number: number): number => u32At(starts, number * WORDS + word);
  /** Returns the class of the lowest address whose words before `next` are those of a first address. */
  const lowestOf = (number: number, next: number): number => {
    const [begin, end] = [number * WORDS + next, (number + 1) * WORDS];
    return starts.subarray(begin, end).every((rest) => rest === 0) ? number : number - 1;
  };
  const map = new WordMap();
  map.put(0, lowestOf(from, word) + 1);
  for (let at = from; at < to; ) {
    const key = wordOf(at);
    let end = at + 1;
    while (end < to && wordOf(end) === key) end++;
    if (end === at + 1 && lowestOf(at, word + 1) === at) map.put(key, at + 1);
    else {
      map.put(key, NEXT_WORD + addWordTree(lines, starts, word + 1, at, end));
      if (key < 0xffff_ffff) map.put(key + 1, end);
    }
    at = end;
  }
  return addTree(lines, map.intervals(), 0, map.length);
}

/** An interval map of one word of addresses. */
class WordMap {
  readonly #starts: number[] = [];
  readonly #values: number[] = [];

  get length(): number {
    return this.#starts.length;
  }

  /** Sets the value from `start` on, which must not be lower than in the call before. */
  put(start: number, value: number): void {
    if (this.#starts.at(-1) === start) {
      this.#starts.pop();
      this.#values.pop();
    }
    if (this.#values.at(-1) === value) return;
    this.#starts.push(start);
    this.#values.push(value);
  }

  intervals(): Intervals {
    return { starts: Uint32Array.from(this.#starts), values: Uint32Array.from(this.#values) };
  }
}
