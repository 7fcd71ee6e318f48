import type { HostnamePattern } from '#contracts/policy-model.js';
import { SLICE } from '#contracts/program.js';
import type { Used } from '#policy/model/budget.js';
import type { GrowingWords } from '#policy/model/growing-words.js';
import type { Sequences } from './sequences.js';

/**
 * The compiled form of a sequence of rules, independent of their ranks. Its port maps contain rule numbers
 * (indexes in the sequence) instead of verdict words. Port maps, destination maps and source-port maps are
 * numbered from 0.
 */
export type RuleBlock = {
  /**
   * The numbers of `SEGMENT`, then the destination maps: the end of each map, the starts of all intervals,
   * and their values. Port maps and then source-port maps follow.
   */
  readonly cells: Uint32Array;
  /**
   * The hostname patterns in the order of first appearance. `leaf` is the number of a port map, or `MAP` plus
   * the number of a destination map.
   */
  readonly names: readonly NamedLeaf[];
  readonly used: Used;
};

export type NamedLeaf = { readonly pattern: HostnamePattern; readonly leaf: number };

/**
 * The first numbers of a rule block: `map`, `wildcard` and `named` as in `Program.segments`, then the sizes
 * of the tables that follow.
 */
export const SEGMENT = {
  map: 0,
  wildcard: 1,
  named: 2,
  maps: 3,
  destinations: 4,
  leaves: 5,
  leafIntervals: 6,
  slices: 7,
  length: 8,
} as const;

export type SegmentParts = {
  readonly map: number;
  readonly wildcard: number;
  readonly named: number;
  /** The end of each destination map, as an index into `starts`. */
  readonly ends: GrowingWords;
  readonly starts: GrowingWords;
  readonly values: GrowingWords;
  readonly leaves: Sequences;
  readonly slices: Sequences;
};

/** Packs a rule block into one array. Omits source-port maps that no port map refers to. */
export function packed(parts: SegmentParts, names: readonly NamedLeaf[], used: Used): RuleBlock {
  const { ends, starts, values, leaves, slices } = parts;
  const kept = keptSlices(leaves);
  let sliceCells = 0;
  for (const slice of kept.keys()) sliceCells += slices.end(slice) - slices.start(slice);
  const cells = new Uint32Array(
    SEGMENT.length + ends.length + 2 * starts.length + leaves.count + leaves.cells.length + kept.size + sliceCells,
  );
  cells[SEGMENT.map] = parts.map;
  cells[SEGMENT.wildcard] = parts.wildcard;
  cells[SEGMENT.named] = parts.named;
  cells[SEGMENT.maps] = ends.length;
  cells[SEGMENT.destinations] = starts.length;
  cells[SEGMENT.leaves] = leaves.count;
  cells[SEGMENT.leafIntervals] = leaves.cells.length / 2;
  cells[SEGMENT.slices] = kept.size;
  let at: number = SEGMENT.length;
  const put = (array: Uint32Array, from: number, to: number): void => {
    for (let index = from; index < to; index++) cells[at++] = array[index] as number;
  };
  put(ends.array, 0, ends.length);
  put(starts.array, 0, starts.length);
  put(values.array, 0, values.length);
  for (let leaf = 0; leaf < leaves.count; leaf++) cells[at++] = leaves.end(leaf) / 2;
  const firstLeaf = at;
  put(leaves.cells.array, 0, leaves.cells.length);
  if (kept.size > 0) {
    for (let value = firstLeaf + 1; value < at; value += 2) {
      const own = cells[value] as number;
      if (own >= SLICE) cells[value] = SLICE + (kept.get(own - SLICE) as number);
    }
    let end = 0;
    for (const slice of kept.keys()) {
      end += (slices.end(slice) - slices.start(slice)) / 2;
      cells[at++] = end;
    }
    for (const slice of kept.keys()) put(slices.cells.array, slices.start(slice), slices.end(slice));
  }
  return { cells, names, used };
}

/** Finds the source-port maps that port maps refer to, and numbers them in the order of first appearance. */
function keptSlices(leaves: Sequences): ReadonlyMap<number, number> {
  const kept = new Map<number, number>();
  const { array, length } = leaves.cells;
  for (let value = 1; value < length; value += 2) {
    const own = array[value] as number;
    if (own >= SLICE && !kept.has(own - SLICE)) kept.set(own - SLICE, kept.size);
  }
  return kept;
}
