import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt, u32At } from '#arrays/read.js';
import type { IntervalPool } from '#contracts/policy/interval-map.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import { DESTINATION_MAP, type FamilyProgram, NONE, SOURCE_PORT_MAP } from '#contracts/policy/program.js';
import { NO_MATCH } from '#contracts/policy/verdict-word.js';
import { RULE_BLOCK, type RuleBlock } from '#policy/compile/rule-blocks/rule-block.js';
import type { ClassNumbers } from '#policy/compile/sources/class-numbers.js';
import { Budget } from '#policy/model/budget.js';
import { NameTable } from './name-table.js';
import { Sequences } from './sequences.js';

type Tables = Pick<FamilyProgram, 'ruleBlocks' | 'destinations' | 'portMaps' | 'sourcePortMaps' | 'namePortMaps'>;

/**
 * The verdict words (rank and verdict) of the rules in a rule block. That of rule `n` is `words[first + n]`.
 */
export type RuleWords = { readonly words: Uint32Array; readonly first: number };

/**
 * The tables of a program (compiled policy), assembled from rule blocks. Equal port maps of rule blocks that
 * share rules are stored once.
 */
export class ProgramTables {
  private readonly maps = new GrowingUint32Array();
  private readonly wildcards = new GrowingUint32Array();
  private readonly named = new GrowingUint32Array();
  private readonly destinations = new Pool();
  private readonly portMaps = new Pool();
  private readonly sourcePortMaps = new Pool();
  private names = new NameTable();
  private readonly sharedPortMaps = new Sequences(Budget.unlimited, 'port maps', 1);
  /** For each port map in `sharedPortMaps`, its number among all port maps of the compiled policy. */
  private readonly sharedNumbers = new GrowingUint32Array();
  private readonly knownSourcePortMaps = new Sequences(Budget.unlimited, 'source-port maps', 1);
  private readonly scratch = new GrowingUint32Array();
  private classes: ClassNumbers | null = null;

  /**
   * Removes all rule blocks (parts of a rule list). `classes`: the address classes of the next program; null
   * for IPv4.
   */
  begin(classes: ClassNumbers | null): void {
    this.classes = classes;
    for (const cells of [this.maps, this.wildcards, this.named, this.sharedNumbers]) cells.length = 0;
    for (const pool of [this.destinations, this.portMaps, this.sourcePortMaps]) pool.clear();
    this.names = new NameTable();
    this.sharedPortMaps.clear();
    this.knownSourcePortMaps.clear();
  }

  /**
   * Returns the number of a hostname pattern. Gives a new number to a new pattern, even if no rule block
   * (part of a rule list) contains the pattern.
   */
  addName(pattern: HostnamePattern): number {
    return this.names.number(pattern);
  }

  /** The hostname patterns of the compiled policy. The index of a pattern is its number. */
  get patterns(): readonly HostnamePattern[] {
    return this.names.patterns;
  }

  /**
   * Adds a rule block to the tables of the compiled policy, and returns its index in `Program.ruleBlocks`.
   * `shared`: another rule block contains some of the same rules. Then equal port maps are likely, and the
   * function searches for a stored equal port map.
   */
  add({ cells, names, classStarts }: RuleBlock, words: RuleWords, shared: boolean): number {
    const number = this.maps.length;
    const firstMap = this.destinations.count;
    const maps = u32At(cells, RULE_BLOCK.maps);
    const intervals = u32At(cells, RULE_BLOCK.destinations);
    const starts = RULE_BLOCK.length + maps;
    const portMapEnds = starts + 2 * intervals;
    const portMaps = this.addPortMaps(cells, portMapEnds, words, shared);
    const firstInterval = this.destinations.addMaps(cells, RULE_BLOCK.length, starts, intervals, portMaps);
    if (classStarts !== null) this.destinations.placeStarts(firstInterval, this.classes, classStarts);
    const map = u32At(cells, RULE_BLOCK.map);
    this.maps.push(map === NONE ? NONE : firstMap + map);
    this.wildcards.push(portMapAt(portMaps, u32At(cells, RULE_BLOCK.wildcard)));
    this.named.push(portMapAt(portMaps, u32At(cells, RULE_BLOCK.named)));
    if (names.length === 0) return number;
    const numbered = names.map(({ pattern, portMap }) => ({
      name: this.names.number(pattern),
      portMap: portMap < DESTINATION_MAP ? portMapAt(portMaps, portMap) : portMap + firstMap,
    }));
    this.names.add(
      number,
      numbered.sort((left, right) => left.name - right.name),
    );
    return number;
  }

  tables(): Tables {
    return {
      ruleBlocks: {
        destinations: this.maps.trimmed(),
        wildcards: this.wildcards.trimmed(),
        named: this.named.trimmed(),
      },
      destinations: this.destinations.trimmed(),
      portMaps: this.portMaps.trimmed(),
      sourcePortMaps: this.sourcePortMaps.trimmed(),
      ...this.names.tables(),
    };
  }

  private addPortMaps(cells: Uint32Array, ends: number, words: RuleWords, shared: boolean): PortMapNumbers {
    const count = u32At(cells, RULE_BLOCK.portMaps);
    const intervals = u32At(cells, RULE_BLOCK.portMapIntervals);
    const first = ends + count;
    const sourcePortMapEnds = first + 2 * intervals;
    const base = this.portMaps.count;
    if (!shared && cells[RULE_BLOCK.sourcePortMaps] === 0) {
      this.portMaps.addPortMaps(cells, ends, count, words);
      return { base, numbers: undefined };
    }
    const numbers: number[] = [];
    let from = first;
    for (let portMap = 0; portMap < count; portMap++) {
      const end = first + 2 * u32At(cells, ends + portMap);
      numbers.push(this.sharedPortMap(cells, from, end, sourcePortMapEnds, words));
      from = end;
    }
    return { base, numbers };
  }

  private sharedPortMap(
    cells: Uint32Array,
    from: number,
    end: number,
    sourcePortMapEnds: number,
    words: RuleWords,
  ): number {
    const { scratch } = this;
    const bottom = scratch.length;
    for (let at = from; at < end; at += 2) {
      const value = this.valueOf(cells, u32At(cells, at + 1), sourcePortMapEnds, words);
      scratch.push(u32At(cells, at));
      scratch.push(value);
    }
    const known = this.sharedPortMaps.count;
    const portMap = this.sharedPortMaps.intern(scratch.array, bottom, scratch.length);
    if (portMap === known) {
      this.sharedNumbers.push(this.portMaps.count);
      for (let at = bottom; at < scratch.length; at += 2) {
        this.portMaps.push(u32At(scratch.array, at), u32At(scratch.array, at + 1));
      }
      this.portMaps.end();
    }
    scratch.length = bottom;
    return u32At(this.sharedNumbers.array, portMap);
  }

  private valueOf(cells: Uint32Array, value: number, sourcePortMapEnds: number, words: RuleWords): number {
    if (value < NO_MATCH) return u32At(words.words, words.first + value);
    return value === NO_MATCH ? NO_MATCH : this.sourcePortMap(cells, value - SOURCE_PORT_MAP, sourcePortMapEnds, words);
  }

  private sourcePortMap(cells: Uint32Array, sourcePortMap: number, ends: number, { words, first }: RuleWords): number {
    const { scratch } = this;
    const bottom = scratch.length;
    const begin = ends + u32At(cells, RULE_BLOCK.sourcePortMaps);
    const end = begin + 2 * u32At(cells, ends + sourcePortMap);
    for (let at = begin + (sourcePortMap === 0 ? 0 : 2 * u32At(cells, ends + sourcePortMap - 1)); at < end; at += 2) {
      const value = u32At(cells, at + 1);
      scratch.push(u32At(cells, at));
      scratch.push(value === NO_MATCH ? NO_MATCH : u32At(words, first + value));
    }
    const known = this.knownSourcePortMaps.count;
    const number = this.knownSourcePortMaps.intern(scratch.array, bottom, scratch.length);
    if (number === known) {
      for (let at = bottom; at < scratch.length; at += 2) {
        this.sourcePortMaps.push(u32At(scratch.array, at), u32At(scratch.array, at + 1));
      }
      this.sourcePortMaps.end();
    }
    scratch.length = bottom;
    return SOURCE_PORT_MAP + number;
  }
}

/**
 * Maps the port-map numbers of a rule block (part of a rule list) to the port-map numbers of the compiled
 * policy. If `numbers` is undefined, port map `n` of the rule block has the number `base + n` there.
 */
type PortMapNumbers = { readonly base: number; readonly numbers: readonly number[] | undefined };

function portMapAt({ base, numbers }: PortMapNumbers, portMap: number): number {
  if (portMap === NONE) return NONE;
  return numbers === undefined ? base + portMap : itemAt(numbers, portMap);
}

/** Builds an `IntervalPool`: many interval maps in one pair of arrays. */
class Pool {
  private readonly starts = new GrowingUint32Array();
  private readonly values = new GrowingUint32Array();
  private readonly offsets = new GrowingUint32Array();

  constructor() {
    this.offsets.push(0);
  }

  clear(): void {
    this.starts.length = 0;
    this.values.length = 0;
    this.offsets.length = 1;
  }

  /** The number of complete interval maps in the pool. */
  get count(): number {
    return this.offsets.length - 1;
  }

  push(start: number, value: number): void {
    this.starts.push(start);
    this.values.push(value);
  }

  /** Completes the current interval map; `push` then adds intervals to the next map. */
  end(): void {
    this.offsets.push(this.starts.length);
  }

  /**
   * Copies destination maps from a rule block (part of a rule list). The rule block contains, in this order,
   * the end of each map, the start of each interval, and the port-map number of each interval. Returns the
   * index of the first added interval.
   */
  addMaps(cells: Uint32Array, ends: number, starts: number, intervals: number, portMaps: PortMapNumbers): number {
    const before = this.starts.length;
    this.starts.append(cells, starts, starts + intervals);
    this.values.reserve(intervals);
    const values = this.values.array;
    for (let at = 0; at < intervals; at++) {
      values[before + at] = portMapAt(portMaps, u32At(cells, starts + intervals + at));
    }
    this.values.length += intervals;
    for (let at = ends; at < starts; at++) this.offsets.push(before + u32At(cells, at));
    return before;
  }

  /**
   * Replaces the starts of the intervals from index `from` on: class numbers of the list `own` become class
   * numbers of the whole policy.
   */
  placeStarts(from: number, classes: ClassNumbers | null, own: readonly bigint[]): void {
    classes?.place(this.starts.array, from, this.starts.length, own);
  }

  /**
   * Copies the port maps of a rule block (part of a rule list) that has no source-port maps. The rule block
   * contains the end of each port map, and then pairs of start key and rule number.
   */
  addPortMaps(cells: Uint32Array, ends: number, count: number, { words, first }: RuleWords): void {
    const before = this.starts.length;
    const from = ends + count;
    const intervals = count === 0 ? 0 : u32At(cells, from - 1);
    this.starts.reserve(intervals);
    this.values.reserve(intervals);
    const starts = this.starts.array;
    const values = this.values.array;
    for (let at = 0; at < intervals; at++) {
      const value = u32At(cells, from + 2 * at + 1);
      starts[before + at] = u32At(cells, from + 2 * at);
      values[before + at] = value === NO_MATCH ? NO_MATCH : u32At(words, first + value);
    }
    this.starts.length += intervals;
    this.values.length += intervals;
    for (let at = ends; at < from; at++) this.offsets.push(before + u32At(cells, at));
  }

  trimmed(): IntervalPool {
    return { starts: this.starts.trimmed(), values: this.values.trimmed(), offsets: this.offsets.trimmed() };
  }
}
