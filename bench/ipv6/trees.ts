import { itemAt } from '#arrays/read.js';

/** The layout of one kind of search tree in cache lines of 64 bytes; see lookup.bpf.c. */
export type TreeLayout = {
  /** Number of children of an inner line, and of values of a bottom line. */
  readonly fan: number;
  readonly values: number;
  /** Number of bits of the depth in the reference to a tree. */
  readonly depthBits: number;
  /** Index of the first value of a bottom line, in 32-bit words. */
  readonly valuesAt: number;
  /** Whether a bottom line has a key for its first value too. */
  readonly keepsFirstKey: boolean;
  /** Writes `key` as key number `place` of a line of the tree. The line begins at index `word` of `words`. */
  put(words: Uint32Array, word: number, place: number, key: bigint, isInner: boolean): void;
  /** Writes a reference to the children into an inner line, which begins at index `word` of `words`. */
  refer(words: Uint32Array, word: number, children: number, last: number): void;
};

const LINE = 16;

const put64 = (words: Uint32Array, at: number, value: bigint): void => {
  words[at] = Number(value & 0xffff_ffffn);
  words[at + 1] = Number(value >> 32n);
};
const refer64 = (words: Uint32Array, word: number, children: number, last: number): void =>
  put64(words, word, (BigInt(children) << 4n) | BigInt(last));

/** The layout of the datapath: 16 children, and eight intervals with eight values. */
export const LAYOUT_32: TreeLayout = {
  ...{ fan: 16, values: 8, depthBits: 3, valuesAt: 8, keepsFirstKey: true },
  put: (words, word, place, key) => {
    words[word + place] = Number(key);
  },
  refer: (words, word, children, last) => {
    words[word] = ((children << 4) | last) >>> 0;
  },
};
export const LAYOUT_64: TreeLayout = {
  ...{ fan: 8, values: 6, depthBits: 3, valuesAt: 10, keepsFirstKey: false },
  put: (words, word, place, key, isInner) => put64(words, word + 2 * (isInner ? place : place - 1), key),
  refer: refer64,
};
export const LAYOUT_128: TreeLayout = {
  ...{ fan: 4, values: 4, depthBits: 4, valuesAt: 12, keepsFirstKey: false },
  put: (words, word, place, key, isInner) => {
    const at = word + 4 * (isInner ? place : place - 1);
    put64(words, at, key >> 64n);
    put64(words, at + 2, key & 0xffff_ffff_ffff_ffffn);
  },
  refer: refer64,
};

/** Writes search trees one after the other into a program slot. Line 0 is never used. */
export class Trees {
  #next = 1;

  constructor(
    readonly words: Uint32Array,
    readonly layout: TreeLayout,
  ) {}

  get lines(): number {
    return this.#next;
  }

  /**
   * Writes a tree in which the value `values[n]` applies from `keys[n]` up to the next key. The keys ascend.
   * Returns a reference to the tree.
   */
  add(keys: readonly bigint[], values: readonly number[]): number {
    const { layout, words } = this;
    let level: { line: number; key: bigint }[] = [];
    for (let first = 0; first < keys.length; first += layout.values) {
      const line = this.#next++;
      const end = Math.min(keys.length, first + layout.values);
      // Fill the unused keys of a line with the largest key, which no address reaches.
      for (let place = layout.keepsFirstKey ? 0 : 1; place < layout.values; place++) {
        const key = first + place < end ? itemAt(keys, first + place) : this.#largest();
        layout.put(words, line * LINE, place, key, false);
      }
      for (let place = 0; first + place < end; place++)
        words[line * LINE + layout.valuesAt + place] = itemAt(values, first + place);
      level.push({ line, key: itemAt(keys, first) });
    }
    let depth = 0;
    for (; level.length > 1; depth++) {
      const above: typeof level = [];
      for (let first = 0; first < level.length; first += layout.fan) {
        const children = level.slice(first, first + layout.fan);
        const line = this.#next++;
        const { line: firstChild, key } = itemAt(children, 0);
        for (let place = 1; place < layout.fan; place++)
          layout.put(words, line * LINE, place, children[place]?.key ?? this.#largest(), true);
        layout.refer(words, line * LINE, firstChild, children.length - 1);
        above.push({ line, key });
      }
      level = above;
    }
    return (itemAt(level, 0).line * 2 ** layout.depthBits + depth) >>> 0;
  }

  #largest(): bigint {
    return (1n << BigInt(this.layout === LAYOUT_32 ? 32 : this.layout === LAYOUT_64 ? 64 : 128)) - 1n;
  }
}
