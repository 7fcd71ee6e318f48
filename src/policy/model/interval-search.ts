import { u32At } from '#arrays/read.js';
import type { Intervals } from '#contracts/interval-map.js';

/**
 * Returns the value of the interval that contains `point`. Searches the intervals with indexes `from` … `to`
 * - 1; the first of them must start at or before `point`.
 */
export function valueAt({ starts, values }: Intervals, point: number, from = 0, to = starts.length): number {
  let low = from;
  let high = to;
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (u32At(starts, middle) <= point) low = middle;
    else high = middle;
  }
  return u32At(values, low);
}
