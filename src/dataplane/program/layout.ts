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

/**
 * What one lookup reads stands together: behind a list its trees, leaves and slices, so that a cold lookup misses few
 * pages. What several lists share stands behind the first of them.
 */
export function layout(program: Program): Image {
  const lines = new Lines();
  lines.add(1);
  const slices = lazily(lines, program.slices, (raw) => raw);
  const leaves = lazily(lines, program.leaves, (raw) => (raw >= SLICE ? (SLICE | slices(raw - SLICE)) >>> 0 : raw));
  const destinations = lazily(lines, program.destinations, leaves);
  const lists = addLists(lines, program, leaves, destinations);
  const { sources } = program;
  const root = addTree(lines, sources, 0, sources.starts.length, (list) => at(lists, list));

  lines.set(0, HEADER.magic, IMAGE_MAGIC);
  lines.set(0, HEADER.layoutVersion, LAYOUT_VERSION);
  lines.set(0, HEADER.lines, lines.count);
  lines.set(0, HEADER.generationLow, 0);
  lines.set(0, HEADER.generationHigh, 0);
  lines.set(0, HEADER.sources, root);
  return { words: lines.toWords(), lines: lines.count };
}

type RefOf = (index: number) => number;

/** Adds a map of the pool when it is first asked for; `NONE` stays `NONE`. */
function lazily(lines: Lines, pool: IntervalPool, value: RefOf): RefOf {
  const refs = new Uint32Array(Math.max(0, pool.offsets.length - 1)).fill(NONE);
  return (map) => {
    if (map === NONE) return NONE;
    const known = at(refs, map);
    if (known !== NONE) return known;
    const added = addTree(lines, pool, at(pool.offsets, map), at(pool.offsets, map + 1), value);
    refs[map] = added;
    return added;
  };
}

/** A list line: number of segments, default word, then destination tree and wildcard leaf of each segment. */
function addLists(lines: Lines, program: Program, leaf: RefOf, destination: RefOf): Uint32Array {
  const { lists, segments } = program;
  const found = new Uint32Array(lists.defaults.length);
  for (const [list, defaultWord] of lists.defaults.entries()) {
    const line = lines.add(1);
    found[list] = line;
    const from = at(lists.offsets, list);
    const count = at(lists.offsets, list + 1) - from;
    if (count > MAX_SEGMENTS) throw new RangeError(`list ${list} has ${count} segments`);
    lines.set(line, 0, count);
    lines.set(line, 1, defaultWord);
    for (let place = 0; place < count; place++) {
      const segment = at(lists.segments, from + place);
      lines.set(line, 2 + 2 * place, destination(at(segments.destinations, segment)));
      lines.set(line, 3 + 2 * place, leaf(at(segments.wildcards, segment)));
    }
  }
  return found;
}

function at(words: Uint32Array, index: number): number {
  const value = words[index];
  if (value === undefined) throw new RangeError(`the program has no entry ${index} of ${words.length}`);
  return value;
}
