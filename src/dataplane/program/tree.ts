import type { Intervals } from '#policy/program.js';
import type { Lines } from './lines.js';
import { LINE_WORDS } from './numbers.js';

const BOTTOM_KEYS = LINE_WORDS / 2;
const FAN_OUT = LINE_WORDS;
const HALF_KEYS = LINE_WORDS / 4;
/** In a ref, in the place of a depth. */
const FIRST_HALF = 6;

/**
 * Lays the intervals `from` … `to` out as a search tree and answers its ref, `line of the root << 3 | inner levels`.
 *
 * A bottom line is 8 starts and their 8 values; missing starts are 0xffffffff and missing values repeat the last.
 * An inner line is `first child << 4 | children - 1` and the first starts of its second to last child; children stand
 * in a row. At most four intervals are half a line, of 4 starts and 4 values; the ref then says which half.
 */
export function addTree(
  lines: Lines,
  intervals: Intervals,
  from: number,
  to: number,
  value: (raw: number) => number,
): number {
  if (to - from <= HALF_KEYS) return addHalf(lines, intervals, from, to, value);
  const bottoms = Math.ceil((to - from) / BOTTOM_KEYS);
  const first = lines.add(bottoms);
  for (let line = 0; line < bottoms; line++) {
    const start = from + line * BOTTOM_KEYS;
    let last = 0;
    for (let key = 0; key < BOTTOM_KEYS; key++) {
      const at = start + key;
      if (at < to) {
        lines.set(first + line, key, intervals.starts[at] ?? 0);
        last = value(intervals.values[at] ?? 0);
      }
      lines.set(first + line, BOTTOM_KEYS + key, last);
    }
  }
  return addInner(lines, first, bottoms);
}

/** Adds the inner lines above bottom lines that stand in a row, and answers the ref of the root. */
function addInner(lines: Lines, bottom: number, bottoms: number): number {
  let first = bottom;
  let count = bottoms;
  let depth = 0;
  /** Bottom lines under each line of the level but the last one. */
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

function addHalf(lines: Lines, intervals: Intervals, from: number, to: number, value: (raw: number) => number): number {
  const { line, half } = lines.addHalf();
  const first = half * 2 * HALF_KEYS;
  let last = 0;
  for (let key = 0; key < HALF_KEYS; key++) {
    const at = from + key;
    if (at < to) {
      lines.set(line, first + key, intervals.starts[at] ?? 0);
      last = value(intervals.values[at] ?? 0);
    }
    lines.set(line, first + HALF_KEYS + key, last);
  }
  return line * 8 + FIRST_HALF + half;
}
