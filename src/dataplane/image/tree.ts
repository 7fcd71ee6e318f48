import { LINE_WORDS } from '#contracts/datapath-numbers.js';
import type { Intervals } from '#contracts/interval-map.js';
import type { Lines } from './cache-lines.js';

const BOTTOM_KEYS = LINE_WORDS / 2;
const FAN_OUT = LINE_WORDS;
const HALF_KEYS = LINE_WORDS / 4;
/**
 * The lowest of two values that replace the depth in a ref: the root is the first or second half of a line.
 */
const FIRST_HALF = 6;

/** Converts the program's values in the words `from` … `to` to the kernel's format; may add lines. */
export type Resolver = { resolve(from: number, to: number): void };

/**
 * Lays the intervals `from` … `to` out as a search tree. Returns its ref, `line of the root << 3 | inner
 * levels`. Without a `resolver`, values are copied from the program.
 *
 * A bottom line has 8 starts and their 8 values; missing starts are 0xffffffff and missing values repeat the
 * last one. An inner line has `first child << 4 | children - 1` and the first starts of its second to last
 * child; children are adjacent. Up to four intervals take half a line, with 4 starts and 4 values; the ref
 * then names the half.
 */
export function addTree(lines: Lines, intervals: Intervals, from: number, to: number, resolver?: Resolver): number {
  if (to - from <= HALF_KEYS) {
    const first = lines.addHalf();
    put(lines, intervals, from, to, first, HALF_KEYS, resolver);
    const isSecond = first % LINE_WORDS !== 0;
    return Math.floor(first / LINE_WORDS) * 8 + FIRST_HALF + (isSecond ? 1 : 0);
  }
  const bottoms = Math.ceil((to - from) / BOTTOM_KEYS);
  const first = lines.add(bottoms);
  for (let line = 0, at = from; line < bottoms; line++, at += BOTTOM_KEYS) {
    put(lines, intervals, at, Math.min(at + BOTTOM_KEYS, to), (first + line) * LINE_WORDS, BOTTOM_KEYS, resolver);
  }
  return addInner(lines, first, bottoms);
}

/** Writes at most `keys` intervals: starts first, then values. Both parts have room for `keys` words. */
function put(
  lines: Lines,
  { starts, values }: Intervals,
  from: number,
  to: number,
  first: number,
  keys: number,
  resolver: Resolver | undefined,
): void {
  let { words } = lines;
  const firstValue = first + keys;
  const count = to - from;
  for (let key = 0; key < count; key++) {
    words[first + key] = starts[from + key] as number;
    words[firstValue + key] = values[from + key] as number;
  }
  if (resolver !== undefined) {
    resolver.resolve(firstValue, firstValue + count);
    words = lines.words;
  }
  const last = count === 0 ? 0 : (words[firstValue + count - 1] as number);
  for (let key = count; key < keys; key++) words[firstValue + key] = last;
}

/** Adds the inner lines above adjacent bottom lines. Returns the ref of the root. */
function addInner(lines: Lines, bottom: number, bottoms: number): number {
  let first = bottom;
  let count = bottoms;
  let depth = 0;
  /** The number of bottom lines under each line of the level, except for the last one. */
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
