import { u32At } from '#arrays/read.js';
import type { IntervalPool } from '#contracts/policy/interval-map.js';
import { isIcmp, type Packet } from '#contracts/policy/policy-model.js';
import {
  DESTINATION_MAP,
  type FamilyProgram,
  NONE,
  type Program,
  portMapKey,
  SOURCE_PORT_MAP,
} from '#contracts/policy/program.js';
import { NO_MATCH } from '#contracts/policy/verdict-word.js';
import { valueAt } from '#policy/model/intervals.js';
import { classOf } from '#policy/model/sources/address-classes.js';
import { populationOf } from '#policy/model/sources/member-index.js';

const noNames: ReadonlySet<number> = new Set();

/**
 * Returns the verdict word for a packet. Searches the tables of the program in the same order as the BPF
 * program. `names` are the numbers of the hostname patterns for which the destination has a grant. `set` is
 * the index of the set of groups that selects the Kubernetes object that owns the source; undefined if no
 * object owns it.
 */
export function classify(program: Program, packet: Packet, names: ReadonlySet<number> = noNames, set?: number): number {
  const { source, destination } = packet;
  if (typeof source === 'number' && typeof destination === 'number')
    return wordIn(program, { ...packet, source, destination }, names, set);
  if (typeof source === 'number' || typeof destination === 'number' || program.ipv6 === null)
    throw new RangeError('the policy is compiled for IPv4 only, and the packet has IPv6 addresses');
  const { classes } = program.ipv6;
  const points = { source: classOf(classes, source), destination: classOf(classes, destination) };
  return wordIn(program.ipv6, { ...packet, ...points }, names, set);
}

/**
 * Returns the verdict word. In `packet`, each address is replaced by its key in the tables: the IPv4 address
 * itself, or the number of an IPv6 address class.
 */
function wordIn(program: FamilyProgram, packet: Packet<number>, names: ReadonlySet<number>, set?: number): number {
  const { lists, ruleBlocks, destinations } = program;
  const low16 = isIcmp(packet.protocol) ? packet.icmpType * 256 + packet.icmpCode : packet.destinationPort;
  const key = portMapKey(packet.protocol, low16);
  const list = listOf(program, packet.source, set);
  for (let at = u32At(lists.offsets, list); at < u32At(lists.offsets, list + 1); at++) {
    const ruleBlock = u32At(lists.ruleBlocks, at);
    const map = u32At(ruleBlocks.destinations, ruleBlock);
    const own = map === NONE ? NONE : searchMap(destinations, map, packet.destination);
    let best = Math.min(
      wordOf(program, own, key, packet.sourcePort),
      wordOf(program, u32At(ruleBlocks.wildcards, ruleBlock), key, packet.sourcePort),
    );
    if (wordOf(program, u32At(ruleBlocks.named, ruleBlock), key, packet.sourcePort) < best) {
      for (const found of namePortMaps(program, ruleBlock, names)) {
        const portMap =
          found < DESTINATION_MAP ? found : searchMap(destinations, found - DESTINATION_MAP, packet.destination);
        best = Math.min(best, wordOf(program, portMap, key, packet.sourcePort));
      }
    }
    if (best !== NO_MATCH) return best;
  }
  return u32At(lists.defaults, list);
}

function listOf({ sources, members }: FamilyProgram, source: number, set: number | undefined): number {
  if (members === null || set === undefined) return valueAt(sources, source);
  return u32At(members.lists, populationOf(members, source, set));
}

/**
 * Yields the numbers of the port maps or destination maps that granted hostname patterns add to a rule block
 * (part of a rule list). The binary search requires rows that are sorted by rule block.
 */
function* namePortMaps(
  { namePortMaps }: FamilyProgram,
  ruleBlock: number,
  names: ReadonlySet<number>,
): Generator<number> {
  if (names.size === 0) return;
  const { ruleBlocks } = namePortMaps;
  let low = 0;
  let high = ruleBlocks.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (u32At(ruleBlocks, middle) < ruleBlock) low = middle + 1;
    else high = middle;
  }
  for (let at = low; ruleBlocks[at] === ruleBlock; at++) {
    if (names.has(u32At(namePortMaps.names, at))) yield u32At(namePortMaps.portMaps, at);
  }
}

function wordOf({ portMaps, sourcePortMaps }: FamilyProgram, portMap: number, key: number, sourcePort: number): number {
  if (portMap === NONE) return NO_MATCH;
  const value = searchMap(portMaps, portMap, key);
  return value < SOURCE_PORT_MAP ? value : searchMap(sourcePortMaps, value - SOURCE_PORT_MAP, sourcePort);
}

function searchMap(pool: IntervalPool, map: number, point: number): number {
  return valueAt(pool, point, u32At(pool.offsets, map), u32At(pool.offsets, map + 1));
}
