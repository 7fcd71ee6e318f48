import { u32At } from '#arrays/read.js';
import { IMAGE_MAGIC, LAYOUT_VERSION, LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import {
  DESTINATION_MAP,
  type FamilyProgram,
  MAX_RULE_BLOCKS,
  NONE,
  type Program,
  SOURCE_PORT_MAP,
} from '#contracts/policy/program.js';
import { Lines } from './cache-lines.js';
import { addClassTree } from './class-tree.js';
import { nameTrees } from './name-trees.js';
import { addTree } from './tree.js';
import { Trees } from './trees.js';

/**
 * A compiled policy in the format that the BPF programs read: cache lines of 64 bytes. References are line
 * numbers from the start of the slot, so that a policy has the same image in either slot. Line 0 is the
 * header; its generation is 0 until `Slots.fill` writes it, and its time is unset until `Slots.flip`
 * writes it.
 */
export type Image = { readonly words: Uint32Array<ArrayBuffer>; readonly lines: number };

/** Offsets of the header fields in cache line 0, in 32-bit words. */
export const HEADER = {
  magic: 0,
  layoutVersion: 1,
  lines: 2,
  generationLow: 3,
  generationHigh: 4,
  sources: 5,
  prefetchesLists: 6,
  hasNames: 7,
  /**
   * Unix time in milliseconds since when the kernel enforces the generation of this image. The BPF programs
   * do not read it. Both words are unset in an image of a build that did not write the time.
   */
  sinceLow: 8,
  sinceHigh: 9,
  /**
   * Ref (position in the image) of the tree that leads from a source to the rule lists of the sources with an
   * owner (`addMembers`); unset if the policy uses no owners.
   */
  bases: 10,
  /** Cache line of the header of IPv6 (`IPV6_HEADER`); unset if the program has no tables of IPv6. */
  ipv6: 11,
} as const;

/** Offsets of the fields in the header of IPv6. The first fields mean what they mean in `HEADER`. */
export const IPV6_HEADER = {
  sources: HEADER.sources,
  prefetchesLists: HEADER.prefetchesLists,
  hasNames: HEADER.hasNames,
  bases: HEADER.bases,
  /** Ref of the tree that leads from an address to its class (`addClassTree`). */
  classes: 12,
} as const;

/**
 * Offset of a word in the cache line of a rule list, in 32-bit words. From this word, the BPF program
 * computes which port maps to prefetch when it searches the first destination tree of the list. Lists with
 * `MAX_RULE_BLOCKS` rule blocks have no room for the word.
 */
const LIST_PORT_MAPS = 14;
const LINES_OF_PORT_MAPS = 4;
const BOTTOM_KEYS = LINE_WORDS / 2;
/**
 * Number of cache lines that stay in the CPU caches (512 KiB). For a smaller image or a smaller destination
 * tree, the BPF program skips the prefetch, which would gain nothing.
 */
const CACHED_LINES = 8_192;
/**
 * Number of cache lines after a rule list that the BPF program prefetches, because they probably contain its
 * rules; must equal the constant in `bpf/classify/rules.h`.
 */
const LINES_BEHIND_LIST = 6;
const NAMED = 0x100;

/**
 * Converts a compiled policy to an image. The trees, port maps and source-port maps of a rule list follow
 * the list. So a classification with cold caches touches few memory pages. Data that several lists use
 * follows the first of these lists. The returned image is a view of `lines`, and is valid until `lines` is
 * changed.
 */
export function layout(program: Program, lines = new Lines()): Image {
  lines.clear(enoughLines(program));
  lines.add(1);
  addFamily(lines, 0, program, program.names.length > 0);
  if (program.ipv6 !== null) {
    const header = lines.add(1);
    lines.set(header, IPV6_HEADER.classes, addClassTree(lines, program.ipv6.classes));
    addFamily(lines, header, program.ipv6, program.names.length > 0);
    lines.set(0, HEADER.ipv6, header);
  }
  lines.set(0, HEADER.magic, IMAGE_MAGIC);
  lines.set(0, HEADER.layoutVersion, LAYOUT_VERSION);
  lines.set(0, HEADER.lines, lines.count);
  lines.set(0, HEADER.generationLow, 0);
  lines.set(0, HEADER.generationHigh, 0);
  return { words: lines.toWords(), lines: lines.count };
}

/** Adds the tables of one family, and writes its fields into the cache line `header`. */
function addFamily(lines: Lines, header: number, program: FamilyProgram, hasNames: boolean): void {
  const before = lines.count;
  const sourcePortMaps = new Trees(lines, program.sourcePortMaps, SOURCE_PORT_MAP);
  const portMaps = new Trees(lines, program.portMaps, 0, sourcePortMaps.isEmpty ? undefined : sourcePortMaps);
  const destinations = new Trees(lines, program.destinations, DESTINATION_MAP, portMaps);
  const names = nameTrees(lines, program, portMaps, destinations);
  const lists = addLists(lines, program, { portMaps, destinations, names });
  const averageLines = (lines.count - before) / Math.max(1, lists.length);
  const { sources } = program;
  const root = addTree(lines, sources, 0, sources.starts.length, {
    resolve(from, to) {
      for (let place = from; place < to; place++) lines.words[place] = at(lists, u32At(lines.words, place));
    },
  });
  const bases = addMembers(lines, program, lists);
  const isCached = lines.count - before < CACHED_LINES;
  lines.set(header, HEADER.sources, root);
  lines.set(header, HEADER.prefetchesLists, isCached || averageLines > 4 * LINES_BEHIND_LIST ? 0 : 1);
  if (bases !== null) lines.set(header, HEADER.bases, bases);
  lines.set(header, HEADER.hasNames, hasNames ? 1 : 0);
}

/**
 * Adds the search trees for sources that a Kubernetes object owns. The key of the first tree is the source
 * address, and its value is the ref (position in the image) of a second tree. The key of the second tree is
 * the index of a set of groups, and its values are rule lists. Returns the ref of the first tree.
 */
function addMembers(lines: Lines, { members }: FamilyProgram, lists: Uint32Array): number | null {
  if (members === null) return null;
  const { trees, bases } = members;
  const refs = new Uint32Array(trees.offsets.length - 1);
  for (let base = 0; base < refs.length; base++) {
    refs[base] = addTree(lines, trees, at(trees.offsets, base), at(trees.offsets, base + 1), {
      resolve(from, to) {
        for (let place = from; place < to; place++) {
          lines.words[place] = at(lists, at(members.lists, u32At(lines.words, place)));
        }
      },
    });
  }
  return addTree(lines, bases, 0, bases.starts.length, {
    resolve(from, to) {
      for (let place = from; place < to; place++) lines.words[place] = at(refs, u32At(lines.words, place));
    },
  });
}

/**
 * Estimates the number of cache lines of a compiled policy, without the trees of hostnames. If the estimate
 * is too low, the array of lines grows.
 */
function enoughLines({ sources, lists, destinations, portMaps, sourcePortMaps }: Program): number {
  const pools = [destinations, portMaps, sourcePortMaps];
  const intervals = pools.reduce((sum, { starts }) => sum + starts.length, sources.starts.length);
  const trees = pools.reduce((sum, { offsets }) => sum + offsets.length, 1);
  return 1_024 + 2 * lists.defaults.length + trees + Math.ceil(intervals / 6);
}

/**
 * Adds one or two cache lines for each rule list, and the data of its rule blocks. The first line contains
 * the number of rule blocks, the default verdict word, and the destination tree and wildcard port map of
 * each block. In its first word, bit 8 + n is set if block n has hostname rules. If a block has hostname
 * rules, a second line follows. It contains the tree of hostnames of each block, and a port map with the
 * lowest verdict words of its hostname rules.
 */
function addLists(
  lines: Lines,
  program: FamilyProgram,
  {
    portMaps,
    destinations,
    names,
  }: { readonly portMaps: Trees; readonly destinations: Trees; readonly names: (ruleBlock: number) => number },
): Uint32Array {
  const { lists, ruleBlocks } = program;
  const found = new Uint32Array(lists.defaults.length);
  for (const [list, defaultWord] of lists.defaults.entries()) {
    const from = at(lists.offsets, list);
    const count = at(lists.offsets, list + 1) - from;
    const named = lists.ruleBlocks
      .subarray(from, from + count)
      .some((ruleBlock) => at(ruleBlocks.named, ruleBlock) !== NONE);
    const line = lines.add(named ? 2 : 1);
    found[list] = line;
    if (count > MAX_RULE_BLOCKS)
      throw new RangeError(
        `build a program image: rule list ${list} has ${count} rule blocks, more than ${MAX_RULE_BLOCKS}`,
      );
    lines.set(line, 0, count);
    lines.set(line, 1, defaultWord);
    for (let place = 0; place < count; place++) {
      const ruleBlock = at(lists.ruleBlocks, from + place);
      const tree = at(ruleBlocks.destinations, ruleBlock);
      const bottoms = lines.count;
      lines.set(line, 2 + 2 * place, destinations.ref(tree));
      if (place === 0 && count < MAX_RULE_BLOCKS && lines.count - bottoms > CACHED_LINES) {
        // The lowest level of the search tree over destinations: each of its cache lines refers to eight port
        // maps of half a line. These four lines of port maps follow the tree, in the same order.
        const size = at(program.destinations.offsets, tree + 1) - at(program.destinations.offsets, tree);
        const first = bottoms + Math.ceil(size / BOTTOM_KEYS);
        lines.set(line, LIST_PORT_MAPS, (first - LINES_OF_PORT_MAPS * bottoms) >>> 0);
      }
      lines.set(line, 3 + 2 * place, portMaps.ref(at(ruleBlocks.wildcards, ruleBlock)));
      const best = at(ruleBlocks.named, ruleBlock);
      if (best === NONE) continue;
      lines.set(line, 0, lines.get(line, 0) + NAMED * 2 ** place);
      lines.set(line + 1, 2 * place, names(ruleBlock));
      lines.set(line + 1, 2 * place + 1, portMaps.ref(best));
    }
  }
  return found;
}

function at(words: Uint32Array, index: number): number {
  const value = words[index];
  if (value === undefined)
    throw new RangeError(
      `build a program image: the index ${index} of the compiled policy is out of bounds, its array has ${words.length} entries`,
    );
  return value;
}
