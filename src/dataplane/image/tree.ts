import { u32At } from '#arrays/read.js';
import { LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import type { Intervals } from '#contracts/policy/interval-map.js';
import type { Lines } from './cache-lines.js';

const BOTTOM_KEYS = LINE_WORDS / 2;
const FAN_OUT = LINE_WORDS;
const HALF_KEYS = LINE_WORDS / 4;
/**
 * The low three bits of a ref (position of a tree in the image) are the depth of the tree. Two values have
 * another meaning: the whole tree is the first (6) or second (7) half of one cache line.
 */
const FIRST_HALF = 6;

/**
 * Replaces values of the compiled policy by refs (positions in the image). Replaces the 32-bit words of the
 * image from index `from` up to index `to`, which is excluded. May add cache lines.
 */
export type Resolver = { resolve(from: number, to: number): void };

/**
 * Adds a search tree for the intervals from index `from` up to index `to`, which is excluded. Returns the
 * ref of the tree: `line of the root << 3 | number of inner levels`. Without a `resolver`, the values of the
 * intervals are copied unchanged.
 *
 * A bottom line has 8 interval starts and their 8 values. Unused starts are 0xffffffff, and unused values
 * repeat the last value. The first word of an inner line is `line of the first child << 4 | number of
 * children - 1`. The next words are the lowest interval start below each child, from the second child to the
 * last. The children of an inner line are adjacent. A tree of up to four intervals takes half a line, with 4
 * starts and 4 values. Its ref says which half.
 */
export function addTree(lines: Lines, intervals: Intervals, from: number, to: number, resolver?: Resolver): number {
  if (to - from <= HALF_KEYS) {
    const first = lines.addHalf();
    put(lines, intervals, { from, to }, { first, keys: HALF_KEYS }, resolver);
    const isSecond = first % LINE_WORDS !== 0;
    return Math.floor(first / LINE_WORDS) * 8 + FIRST_HALF + (isSecond ? 1 : 0);
  }
  const bottoms = Math.ceil((to - from) / BOTTOM_KEYS);
  const first = lines.add(bottoms);
  for (let line = 0, at = from; line < bottoms; line++, at += BOTTOM_KEYS) {
    const room = { first: (first + line) * LINE_WORDS, keys: BOTTOM_KEYS };
    put(lines, intervals, { from: at, to: Math.min(at + BOTTOM_KEYS, to) }, room, resolver);
  }
  return addInner(lines, first, bottoms);
}

/** Room in the image for `keys` intervals: their starts from word `first` on, and then their values. */
type Room = { readonly first: number; readonly keys: number };

/**
 * Writes the intervals from index `from` up to index `to`, which is excluded; at most `keys` intervals.
 * First come their starts, then their values.
 */
function put(
  lines: Lines,
  { starts, values }: Intervals,
  { from, to }: { readonly from: number; readonly to: number },
  { first, keys }: Room,
  resolver: Resolver | undefined,
): void {
  let { words } = lines;
  const firstValue = first + keys;
  const count = to - from;
  for (let key = 0; key < count; key++) {
    words[first + key] = u32At(starts, from + key);
    words[firstValue + key] = u32At(values, from + key);
  }
  if (resolver !== undefined) {
    resolver.resolve(firstValue, firstValue + count);
    words = lines.words;
  }
  const last = count === 0 ? 0 : u32At(words, firstValue + count - 1);
  for (let key = count; key < keys; key++) words[firstValue + key] = last;
}

/**
 * Adds the inner lines of a search tree above its bottom lines, which must be adjacent. Returns the ref of
 * the root: `line of the root << 3 | number of inner levels`.
 */
function addInner(lines: Lines, bottom: number, bottoms: number): number {
  let first = bottom;
  let count = bottoms;
  let depth = 0;
  /**
   * Number of bottom lines below each line of the current level; the last line of the level may have fewer.
   */
  let under = 1;
  while (count > 1) {
    const parents = Math.ceil(count / FAN_OUT);
    const firstParent = lines.add(parents);
    for (let parent = 0; parent < parents; parent++) {
      const firstChild = parent * FAN_OUT;
      const children = Math.min(FAN_OUT, count - firstChild);
      lines.set(firstParent + parent, 0, (first + firstChild) * 16 + children - 1);
      for (let child = 1; child < children; child++) {
        lines.set(firstParent + parent, child, lines.get(bottom + (firstChild + child) * under, 0));
      }
    }
    first = firstParent;
    count = parents;
    under *= FAN_OUT;
    depth++;
  }
  return first * 8 + depth;
}
