import type { IntervalPool } from '#contracts/interval-map.js';
import { type Grants, IPPROTO, type Packet } from '#contracts/policy-model.js';
import { leafKey, MAP, NONE, type Program, SLICE } from '#contracts/program.js';
import { NO_MATCH } from '#contracts/verdict-word.js';
import { cell, valueAt } from './interval-search.js';

const noNames: ReadonlySet<number> = new Set();

/**
 * Returns the verdict word for a packet. Searches the tables of the program in the same order as the kernel.
 * `names` are the numbers of the hostname patterns for which the destination has a grant.
 */
export function classify(program: Program, packet: Packet, names: ReadonlySet<number> = noNames): number {
  const { sources, lists, segments, destinations } = program;
  const low16 = packet.protocol === IPPROTO.icmp ? packet.icmpType * 256 + packet.icmpCode : packet.destinationPort;
  const key = leafKey(packet.protocol, low16);
  const list = valueAt(sources, packet.source);
  for (let at = cell(lists.offsets, list); at < cell(lists.offsets, list + 1); at++) {
    const segment = cell(lists.segments, at);
    const map = cell(segments.destinations, segment);
    const own = map === NONE ? NONE : searchMap(destinations, map, packet.destination);
    let best = Math.min(
      wordOf(program, own, key, packet.sourcePort),
      wordOf(program, cell(segments.wildcards, segment), key, packet.sourcePort),
    );
    if (wordOf(program, cell(segments.named, segment), key, packet.sourcePort) < best) {
      for (const found of nameLeaves(program, segment, names)) {
        const leaf = found < MAP ? found : searchMap(destinations, found - MAP, packet.destination);
        best = Math.min(best, wordOf(program, leaf, key, packet.sourcePort));
      }
    }
    if (best !== NO_MATCH) return best;
  }
  return cell(lists.defaults, list);
}

/** Returns the numbers of the hostname patterns in a program for which the address has a grant. */
export function grantedNames(program: Program, address: number, grants: Grants): ReadonlySet<number> {
  const granted = new Set<number>();
  for (const [index, pattern] of program.names.entries()) {
    if (grants.has(pattern, address)) granted.add(index);
  }
  return granted;
}

/**
 * Yields the port maps or destination maps that granted hostname patterns add to a rule block (`segment`).
 * The binary search requires rows that are sorted by segment.
 */
function* nameLeaves({ nameLeaves }: Program, segment: number, names: ReadonlySet<number>): Generator<number> {
  if (names.size === 0) return;
  const { segments } = nameLeaves;
  let low = 0;
  let high = segments.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (cell(segments, middle) < segment) low = middle + 1;
    else high = middle;
  }
  for (let at = low; segments[at] === segment; at++) {
    if (names.has(cell(nameLeaves.names, at))) yield cell(nameLeaves.leaves, at);
  }
}

function wordOf({ leaves, slices }: Program, leaf: number, key: number, sourcePort: number): number {
  if (leaf === NONE) return NO_MATCH;
  const value = searchMap(leaves, leaf, key);
  return value < SLICE ? value : searchMap(slices, value - SLICE, sourcePort);
}

function searchMap(pool: IntervalPool, map: number, point: number): number {
  return valueAt(pool, point, cell(pool.offsets, map), cell(pool.offsets, map + 1));
}
