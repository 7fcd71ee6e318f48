import type { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { u32At } from '#arrays/read.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import { SOURCE_PORT_MAP } from '#contracts/policy/program.js';
import type { Sequences } from '#policy/compile/sequences.js';
import type { Used } from '#policy/model/budget.js';

/**
 * The compiled form of a sequence of rules, independent of their ranks in the policy. Its port maps contain
 * rule numbers (indexes in the sequence) instead of verdict words. Its port maps, destination maps and
 * source-port maps are numbered from 0.
 */
export type RuleBlock = {
  /**
   * The numbers that `RULE_BLOCK` names, then the destination maps: the end of each map, the starts of all
   * intervals, and their values. Port maps and then source-port maps follow.
   */
  readonly cells: Uint32Array;
  /**
   * The hostname patterns in the order of first appearance. `portMap` is the number of a port map, or `MAP`
   * plus the number of a destination map.
   */
  readonly names: readonly NamedPortMap[];
  /** The first address of each address class that the destination maps name; null for IPv4. */
  readonly classStarts: readonly bigint[] | null;
  readonly used: Used;
};

export type NamedPortMap = { readonly pattern: HostnamePattern; readonly portMap: number };

/**
 * The indexes of the first numbers in `RuleBlock.cells`. `map`, `wildcard` and `named` are as in
 * `Program.ruleBlocks`. The other numbers are the sizes of the tables that follow; `length` is the index
 * where the tables begin.
 */
export const RULE_BLOCK = {
  map: 0,
  wildcard: 1,
  named: 2,
  maps: 3,
  destinations: 4,
  portMaps: 5,
  portMapIntervals: 6,
  sourcePortMaps: 7,
  length: 8,
} as const;

export type RuleBlockParts = {
  readonly map: number;
  readonly wildcard: number;
  readonly named: number;
  /** The end of each destination map, as an index into `starts`. */
  readonly ends: GrowingUint32Array;
  readonly starts: GrowingUint32Array;
  readonly values: GrowingUint32Array;
  readonly portMaps: Sequences;
  readonly sourcePortMaps: Sequences;
  readonly classStarts: readonly bigint[] | null;
};

/**
 * Packs a rule block (part of a rule list) into one array. Omits source-port maps that no port map refers to.
 */
export function packed(parts: RuleBlockParts, names: readonly NamedPortMap[], used: Used): RuleBlock {
  const { ends, starts, values, portMaps, sourcePortMaps } = parts;
  const kept = keptSourcePortMaps(portMaps);
  let sourcePortMapCells = 0;
  for (const sourcePortMap of kept.keys())
    sourcePortMapCells += sourcePortMaps.end(sourcePortMap) - sourcePortMaps.start(sourcePortMap);
  const cells = new Uint32Array(
    RULE_BLOCK.length +
      ends.length +
      2 * starts.length +
      portMaps.count +
      portMaps.cells.length +
      kept.size +
      sourcePortMapCells,
  );
  cells[RULE_BLOCK.map] = parts.map;
  cells[RULE_BLOCK.wildcard] = parts.wildcard;
  cells[RULE_BLOCK.named] = parts.named;
  cells[RULE_BLOCK.maps] = ends.length;
  cells[RULE_BLOCK.destinations] = starts.length;
  cells[RULE_BLOCK.portMaps] = portMaps.count;
  cells[RULE_BLOCK.portMapIntervals] = portMaps.cells.length / 2;
  cells[RULE_BLOCK.sourcePortMaps] = kept.size;
  let at: number = RULE_BLOCK.length;
  const put = (array: Uint32Array, from: number, to: number): void => {
    for (let index = from; index < to; index++) cells[at++] = u32At(array, index);
  };
  put(ends.array, 0, ends.length);
  put(starts.array, 0, starts.length);
  put(values.array, 0, values.length);
  for (let portMap = 0; portMap < portMaps.count; portMap++) cells[at++] = portMaps.end(portMap) / 2;
  const firstPortMap = at;
  put(portMaps.cells.array, 0, portMaps.cells.length);
  if (kept.size > 0) {
    for (let value = firstPortMap + 1; value < at; value += 2) {
      const own = u32At(cells, value);
      if (own >= SOURCE_PORT_MAP) cells[value] = SOURCE_PORT_MAP + (kept.get(own - SOURCE_PORT_MAP) as number);
    }
    let end = 0;
    for (const sourcePortMap of kept.keys()) {
      end += (sourcePortMaps.end(sourcePortMap) - sourcePortMaps.start(sourcePortMap)) / 2;
      cells[at++] = end;
    }
    for (const sourcePortMap of kept.keys())
      put(sourcePortMaps.cells.array, sourcePortMaps.start(sourcePortMap), sourcePortMaps.end(sourcePortMap));
  }
  return { cells, names, classStarts: parts.classStarts, used };
}

/** Finds the source-port maps that port maps refer to, and numbers them in the order of first appearance. */
function keptSourcePortMaps(portMaps: Sequences): ReadonlyMap<number, number> {
  const kept = new Map<number, number>();
  const { array, length } = portMaps.cells;
  for (let value = 1; value < length; value += 2) {
    const own = u32At(array, value);
    if (own >= SOURCE_PORT_MAP && !kept.has(own - SOURCE_PORT_MAP)) kept.set(own - SOURCE_PORT_MAP, kept.size);
  }
  return kept;
}
