import { IMAGE_MAGIC, LAYOUT_VERSION, LINE_WORDS } from '#contracts/datapath-numbers.js';
import { MAP, MAX_SEGMENTS, NONE, type Program, SLICE } from '#contracts/program.js';
import { Lines } from './cache-lines.js';
import { nameTrees } from './name-trees.js';
import { addTree } from './tree.js';
import { Trees } from './trees.js';

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
  behindLists: 6,
  hasNames: 7,
} as const;

/** Of a list line with fewer than `MAX_SEGMENTS` segments: where the leaves of its first destination tree stand. */
const LIST_LEAVES = 14;
const LINES_OF_LEAVES = 4;
const BOTTOM_KEYS = LINE_WORDS / 2;
/** What is smaller than this stays in the caches by itself; bringing it there again would only cost. */
const CACHED_LINES = 8_192;
/** As in `bpf/classify/rules.h`. */
const LINES_BEHIND_LIST = 6;
const NAMED = 0x100;

/**
 * What one lookup reads stands together: behind a list its trees, leaves and slices, so that a cold lookup misses few
 * pages. What several lists share stands behind the first of them.
 *
 * The image is in `lines`, and lasts until they are used again.
 */
export function layout(program: Program, lines = new Lines()): Image {
  lines.clear(enoughLines(program));
  lines.add(1);
  const slices = new Trees(lines, program.slices, SLICE);
  const leaves = new Trees(lines, program.leaves, 0, slices.isEmpty ? undefined : slices);
  const destinations = new Trees(lines, program.destinations, MAP, leaves);
  const names = nameTrees(lines, program, leaves, destinations);
  const lists = addLists(lines, program, { leaves, destinations, names });
  const averageLines = lines.count / Math.max(1, lists.length);
  const { sources } = program;
  const root = addTree(lines, sources, 0, sources.starts.length, {
    resolve(from, to) {
      for (let place = from; place < to; place++) lines.words[place] = at(lists, lines.words[place] as number);
    },
  });

  lines.set(0, HEADER.magic, IMAGE_MAGIC);
  lines.set(0, HEADER.layoutVersion, LAYOUT_VERSION);
  lines.set(0, HEADER.lines, lines.count);
  lines.set(0, HEADER.generationLow, 0);
  lines.set(0, HEADER.generationHigh, 0);
  lines.set(0, HEADER.sources, root);
  lines.set(0, HEADER.behindLists, lines.count < CACHED_LINES || averageLines > 4 * LINES_BEHIND_LIST ? 0 : 1);
  lines.set(0, HEADER.hasNames, program.names.length > 0 ? 1 : 0);
  return { words: lines.toWords(), lines: lines.count };
}

/** At least as many lines as the trees of a program take. */
function enoughLines({ sources, lists, destinations, leaves, slices }: Program): number {
  const pools = [destinations, leaves, slices];
  const intervals = pools.reduce((sum, { starts }) => sum + starts.length, sources.starts.length);
  const trees = pools.reduce((sum, { offsets }) => sum + offsets.length, 1);
  return 1_024 + 2 * lists.defaults.length + trees + Math.ceil(intervals / 6);
}

/**
 * A list line: number of segments with a bit from `NAMED` on for each that has names, default word, then destination tree
 * and wildcard leaf of each segment. Where a segment has names a second line follows: the tree of its names, and the leaf
 * of what they could bring at best.
 */
function addLists(
  lines: Lines,
  program: Program,
  {
    leaves,
    destinations,
    names,
  }: { readonly leaves: Trees; readonly destinations: Trees; readonly names: (segment: number) => number },
): Uint32Array {
  const { lists, segments } = program;
  const found = new Uint32Array(lists.defaults.length);
  for (const [list, defaultWord] of lists.defaults.entries()) {
    const from = at(lists.offsets, list);
    const count = at(lists.offsets, list + 1) - from;
    const named = lists.segments.subarray(from, from + count).some((segment) => at(segments.named, segment) !== NONE);
    const line = lines.add(named ? 2 : 1);
    found[list] = line;
    if (count > MAX_SEGMENTS) throw new RangeError(`list ${list} has ${count} segments`);
    lines.set(line, 0, count);
    lines.set(line, 1, defaultWord);
    for (let place = 0; place < count; place++) {
      const segment = at(lists.segments, from + place);
      const tree = at(segments.destinations, segment);
      const bottoms = lines.count;
      lines.set(line, 2 + 2 * place, destinations.ref(tree));
      if (place === 0 && count < MAX_SEGMENTS && lines.count - bottoms > CACHED_LINES) {
        // A bottom line's eight leaves are half a line each, and stand in order behind all bottom lines.
        const size = at(program.destinations.offsets, tree + 1) - at(program.destinations.offsets, tree);
        const first = bottoms + Math.ceil(size / BOTTOM_KEYS);
        lines.set(line, LIST_LEAVES, (first - LINES_OF_LEAVES * bottoms) >>> 0);
      }
      lines.set(line, 3 + 2 * place, leaves.ref(at(segments.wildcards, segment)));
      const best = at(segments.named, segment);
      if (best === NONE) continue;
      lines.set(line, 0, lines.get(line, 0) + NAMED * 2 ** place);
      lines.set(line + 1, 2 * place, names(segment));
      lines.set(line + 1, 2 * place + 1, leaves.ref(best));
    }
  }
  return found;
}

function at(words: Uint32Array, index: number): number {
  const value = words[index];
  if (value === undefined) throw new RangeError(`the program has no entry ${index} of ${words.length}`);
  return value;
}
