import { type IntervalPool, MAX_SEGMENTS, NONE, type Program, SLICE } from '#policy/program.js';
import { Lines } from './lines.js';
import { IMAGE_MAGIC, LAYOUT_VERSION } from './numbers.js';
import { addTree } from './tree.js';

/**
 * A program as the kernel reads it: lines of 64 bytes, addressed from the first line of the slot, so that the same
 * policy has the same image in either slot. Line 0 is the header, with a generation of 0.
 */
export type Image = { readonly words: Uint32Array<ArrayBuffer>; readonly lines: number };

/** Words of line 0. */
export const HEADER = {
  magic: 0,
  layoutVersion: 1,
  lines: 2,
  generationLow: 3,
  generationHigh: 4,
  sources: 5,
} as const;

export function layout(program: Program): Image {
  const lines = new Lines();
  lines.add(1);
  const slices = addPool(lines, program.slices, (raw) => raw);
  const leaves = addPool(lines, program.leaves, (raw) =>
    raw >= SLICE ? (SLICE | at(slices, raw - SLICE)) >>> 0 : raw,
  );
  const leaf = (index: number): number => (index === NONE ? NONE : at(leaves, index));
  const destinations = addPool(lines, program.destinations, leaf);
  const firstList = addLists(lines, program, leaf, destinations);
  const { sources } = program;
  const root = addTree(lines, sources, 0, sources.starts.length, (list) => firstList + list);

  lines.set(0, HEADER.magic, IMAGE_MAGIC);
  lines.set(0, HEADER.layoutVersion, LAYOUT_VERSION);
  lines.set(0, HEADER.lines, lines.count);
  lines.set(0, HEADER.generationLow, 0);
  lines.set(0, HEADER.generationHigh, 0);
  lines.set(0, HEADER.sources, root);
  return { words: lines.toWords(), lines: lines.count };
}

function addPool(lines: Lines, pool: IntervalPool, value: (raw: number) => number): Uint32Array {
  const refs = new Uint32Array(Math.max(0, pool.offsets.length - 1));
  for (let map = 0; map < refs.length; map++) {
    refs[map] = addTree(lines, pool, at(pool.offsets, map), at(pool.offsets, map + 1), value);
  }
  return refs;
}

/** A list line: number of segments, default word, then destination tree and wildcard leaf of each segment. */
function addLists(lines: Lines, program: Program, leaf: (index: number) => number, destinations: Uint32Array): number {
  const { lists, segments } = program;
  const first = lines.add(lists.defaults.length);
  for (const [list, defaultWord] of lists.defaults.entries()) {
    const from = at(lists.offsets, list);
    const count = at(lists.offsets, list + 1) - from;
    if (count > MAX_SEGMENTS) throw new RangeError(`list ${list} has ${count} segments`);
    lines.set(first + list, 0, count);
    lines.set(first + list, 1, defaultWord);
    for (let place = 0; place < count; place++) {
      const segment = at(lists.segments, from + place);
      const tree = at(segments.destinations, segment);
      lines.set(first + list, 2 + 2 * place, tree === NONE ? NONE : at(destinations, tree));
      lines.set(first + list, 3 + 2 * place, leaf(at(segments.wildcards, segment)));
    }
  }
  return first;
}

function at(words: Uint32Array, index: number): number {
  const value = words[index];
  if (value === undefined) throw new RangeError(`the program has no entry ${index} of ${words.length}`);
  return value;
}
