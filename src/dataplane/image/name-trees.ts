import { u32At } from '#arrays/read.js';

import { DESTINATION_MAP, type FamilyProgram, NONE } from '#contracts/policy/program.js';
import type { Lines } from './cache-lines.js';
import { addTree, type Resolver } from './tree.js';
import type { Trees } from './trees.js';

/**
 * Returns a function that returns the ref (position in the image) of a rule block's search tree of
 * hostnames. The first call for a block adds its tree to the image. The key of a hostname is its index in
 * `Program.names` + 1. Its value refers to a port map, or with the bit `MAP` to a map of destinations. All
 * other keys have the value `NONE`.
 */
export function nameTrees(
  lines: Lines,
  { ruleBlocks, namePortMaps }: FamilyProgram,
  portMaps: Trees,
  destinations: Trees,
): (ruleBlock: number) => number {
  const ends = new Uint32Array(ruleBlocks.named.length);
  for (const [at, ruleBlock] of namePortMaps.ruleBlocks.entries()) ends[ruleBlock] = at + 1;
  const refs = new Map<number, number>();
  const resolver: Resolver = {
    resolve(from, to) {
      for (let at = from; at < to; at++) {
        const trees = u32At(lines.words, at) < DESTINATION_MAP ? portMaps : destinations;
        trees.resolve(at, at + 1);
      }
    },
  };
  return (ruleBlock) => {
    const known = refs.get(ruleBlock);
    if (known !== undefined) return known;
    const end = u32At(ends, ruleBlock);
    const starts = [0];
    const values = [NONE];
    for (let at = firstOf(namePortMaps.ruleBlocks, ruleBlock, end); at < end; at++) {
      const key = u32At(namePortMaps.names, at) + 1;
      if (starts.at(-1) === key) values[values.length - 1] = namePortMaps.portMaps[at] ?? NONE;
      else {
        starts.push(key);
        values.push(namePortMaps.portMaps[at] ?? NONE);
      }
      starts.push(key + 1);
      values.push(NONE);
    }
    const intervals = { starts: Uint32Array.from(starts), values: Uint32Array.from(values) };
    const added = addTree(lines, intervals, 0, starts.length, resolver);
    refs.set(ruleBlock, added);
    return added;
  };
}

/**
 * Returns the index in the ascending array `owners` of the first element that equals `ruleBlock`. The last
 * such element is at `end - 1`.
 */
function firstOf(owners: Uint32Array, ruleBlock: number, end: number): number {
  let first = end;
  while (first > 0 && owners[first - 1] === ruleBlock) first--;
  return first;
}
