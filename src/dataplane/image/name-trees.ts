import { MAP, NONE, type Program } from '#contracts/program.js';
import type { Lines } from './cache-lines.js';
import { addTree, type Resolver } from './tree.js';
import type { Trees } from './trees.js';

/**
 * Returns a function that returns the ref (position in the image) of a rule block's search tree of hostnames.
 * The function adds the tree to the image at the first call for that block. The tree maps the number of a
 * hostname + 1 to the value of that hostname, and all other keys to `NONE`.
 */
export function nameTrees(
  lines: Lines,
  { segments, nameLeaves }: Program,
  leaves: Trees,
  destinations: Trees,
): (segment: number) => number {
  const ends = new Uint32Array(segments.named.length);
  for (const [at, segment] of nameLeaves.segments.entries()) ends[segment] = at + 1;
  const refs = new Map<number, number>();
  const resolver: Resolver = {
    resolve(from, to) {
      for (let at = from; at < to; at++) {
        const trees = (lines.words[at] as number) < MAP ? leaves : destinations;
        trees.resolve(at, at + 1);
      }
    },
  };
  return (segment) => {
    const known = refs.get(segment);
    if (known !== undefined) return known;
    const end = ends[segment] ?? 0;
    const starts = [0];
    const values = [NONE];
    for (let at = firstOf(nameLeaves.segments, segment, end); at < end; at++) {
      const key = (nameLeaves.names[at] ?? 0) + 1;
      if (starts.at(-1) === key) values[values.length - 1] = nameLeaves.leaves[at] ?? NONE;
      else {
        starts.push(key);
        values.push(nameLeaves.leaves[at] ?? NONE);
      }
      starts.push(key + 1);
      values.push(NONE);
    }
    const intervals = { starts: Uint32Array.from(starts), values: Uint32Array.from(values) };
    const added = addTree(lines, intervals, 0, starts.length, resolver);
    refs.set(segment, added);
    return added;
  };
}

/**
 * Returns the index in `owners` where the elements with the value `segment` (a rule block) begin. These
 * elements are adjacent, and the last one is before `end`.
 */
function firstOf(owners: Uint32Array, segment: number, end: number): number {
  let first = end;
  while (first > 0 && owners[first - 1] === segment) first--;
  return first;
}
