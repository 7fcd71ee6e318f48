import { IMAGE_MAGIC, LAYOUT_VERSION, LINE_WORDS } from '#contracts/datapath-numbers.js';
import { MAP, MAX_SEGMENTS, NONE, type Program, SLICE } from '#contracts/program.js';
import { Lines } from './cache-lines.js';
import { nameTrees } from './name-trees.js';
import { addTree } from './tree.js';
import { Trees } from './trees.js';

/**
 * A program in the kernel's format: lines of 64 bytes. References count from the first line of the slot, so
 * that a policy has the same image in either slot. Line 0 is the header, with generation 0.
 */
export type Image = { readonly words: Uint32Array<ArrayBuffer>; readonly lines: number };

/** Offsets in line 0, in words. */
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

/**
 * Word of a list line with fewer than `MAX_SEGMENTS` segments: the position of the leaves of its first
 * destination tree.
 */
const LIST_LEAVES = 14;
const LINES_OF_LEAVES = 4;
const BOTTOM_KEYS = LINE_WORDS / 2;
/** Smaller images stay in the CPU caches, and a prefetch would only cost time. */
const CACHED_LINES = 8_192;
/** As in `bpf/classify/rules.h`. */
const LINES_BEHIND_LIST = 6;
const NAMED = 0x100;

/**
 * Lays a program out. The data of one lookup is adjacent: a list is followed by its trees, leaves and slices,
 * so that a cold lookup touches few pages. Shared parts follow the first list that uses them.
 *
 * The image is in `lines`, and is valid until they are used again.
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

/** An upper bound of the lines for the trees of a program. */
function enoughLines({ sources, lists, destinations, leaves, slices }: Program): number {
  const pools = [destinations, leaves, slices];
  const intervals = pools.reduce((sum, { starts }) => sum + starts.length, sources.starts.length);
  const trees = pools.reduce((sum, { offsets }) => sum + offsets.length, 1);
  return 1_024 + 2 * lists.defaults.length + trees + Math.ceil(intervals / 6);
}

/**
 * Adds a line for each list: the number of segments, with a bit from `NAMED` on for each segment that has
 * names; the default word; then destination tree and wildcard leaf of each segment. If a segment has names, a
 * second line follows: the tree of its names, and the leaf with the highest rank that a name could give.
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
        // The eight leaves of a bottom line are half a line each, and follow all bottom lines in order.
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
