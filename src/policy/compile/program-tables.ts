import type { HostnamePattern } from '#contracts/policy-model.js';
import { MAP, NONE, type Program, SLICE } from '#contracts/program.js';
import { NO_MATCH } from '#contracts/verdict-word.js';
import { Budget } from '#policy/model/budget.js';
import { GrowingWords } from '#policy/model/growing-words.js';
import { NameTable } from './name-table.js';
import { type RuleBlock, SEGMENT } from './rule-block.js';
import { Sequences } from './sequences.js';

type Tables = Pick<Program, 'segments' | 'destinations' | 'leaves' | 'slices' | 'names' | 'nameLeaves'>;

/** The verdict words of the rules in a rule block. The verdict word of rule `n` is `words[first + n]`. */
export type RuleWords = { readonly words: Uint32Array; readonly first: number };

/**
 * The tables of a program, assembled from rule blocks. Port maps that several rule blocks have in common are
 * stored once.
 */
export class ProgramTables {
  private readonly maps = new GrowingWords();
  private readonly wildcards = new GrowingWords();
  private readonly named = new GrowingWords();
  private readonly destinations = new Pool();
  private readonly leaves = new Pool();
  private readonly slices = new Pool();
  private names = new NameTable();
  private readonly sharedLeaves = new Sequences(Budget.unlimited, 'leaves', 1);
  /** For each port map in `sharedLeaves`, its number among all port maps of the program. */
  private readonly sharedNumbers = new GrowingWords();
  private readonly knownSlices = new Sequences(Budget.unlimited, 'slices', 1);
  private readonly scratch = new GrowingWords();

  /** Empties the tables before the compilation of the next program. */
  clear(): void {
    for (const cells of [this.maps, this.wildcards, this.named, this.sharedNumbers]) cells.length = 0;
    for (const pool of [this.destinations, this.leaves, this.slices]) pool.clear();
    this.names = new NameTable();
    this.sharedLeaves.clear();
    this.knownSlices.clear();
  }

  /**
   * Returns the number of a hostname pattern. Adds a new pattern, even if no rule block of the program
   * contains the pattern.
   */
  addName(pattern: HostnamePattern): number {
    return this.names.number(pattern);
  }

  /** The hostname patterns of the program. The index of a pattern is its number. */
  get patterns(): readonly HostnamePattern[] {
    return this.names.patterns;
  }

  /**
   * Adds a rule block to the program tables, and returns its segment number (index in `Program.segments`).
   * `shared`: another rule block contains some of the same rules, so equal port maps are likely.
   */
  add({ cells, names }: RuleBlock, words: RuleWords, shared: boolean): number {
    const number = this.maps.length;
    const firstMap = this.destinations.count;
    const maps = cells[SEGMENT.maps] as number;
    const intervals = cells[SEGMENT.destinations] as number;
    const starts = SEGMENT.length + maps;
    const leafEnds = starts + 2 * intervals;
    const leaves = this.addLeaves(cells, leafEnds, words, shared);
    this.destinations.addMaps(cells, SEGMENT.length, starts, intervals, leaves);
    const map = cells[SEGMENT.map] as number;
    this.maps.push(map === NONE ? NONE : firstMap + map);
    this.wildcards.push(leafAt(leaves, cells[SEGMENT.wildcard] as number));
    this.named.push(leafAt(leaves, cells[SEGMENT.named] as number));
    if (names.length === 0) return number;
    const numbered = names.map(({ pattern, leaf }) => ({
      name: this.names.number(pattern),
      leaf: leaf < MAP ? leafAt(leaves, leaf) : leaf + firstMap,
    }));
    this.names.add(
      number,
      numbered.sort((left, right) => left.name - right.name),
    );
    return number;
  }

  tables(): Tables {
    return {
      segments: {
        destinations: this.maps.trimmed(),
        wildcards: this.wildcards.trimmed(),
        named: this.named.trimmed(),
      },
      destinations: this.destinations.trimmed(),
      leaves: this.leaves.trimmed(),
      slices: this.slices.trimmed(),
      ...this.names.tables(),
    };
  }

  private addLeaves(cells: Uint32Array, ends: number, words: RuleWords, shared: boolean): LeafNumbers {
    const count = cells[SEGMENT.leaves] as number;
    const intervals = cells[SEGMENT.leafIntervals] as number;
    const first = ends + count;
    const sliceEnds = first + 2 * intervals;
    const base = this.leaves.count;
    if (!shared && cells[SEGMENT.slices] === 0) {
      this.leaves.addLeaves(cells, ends, count, words);
      return { base, numbers: undefined };
    }
    const numbers: number[] = [];
    let from = first;
    for (let leaf = 0; leaf < count; leaf++) {
      const end = first + 2 * (cells[ends + leaf] as number);
      numbers.push(this.sharedLeaf(cells, from, end, sliceEnds, words));
      from = end;
    }
    return { base, numbers };
  }

  private sharedLeaf(cells: Uint32Array, from: number, end: number, sliceEnds: number, words: RuleWords): number {
    const { scratch } = this;
    const bottom = scratch.length;
    for (let at = from; at < end; at += 2) {
      const value = this.valueOf(cells, cells[at + 1] as number, sliceEnds, words);
      scratch.push(cells[at] as number);
      scratch.push(value);
    }
    const known = this.sharedLeaves.count;
    const leaf = this.sharedLeaves.intern(scratch.array, bottom, scratch.length);
    if (leaf === known) {
      this.sharedNumbers.push(this.leaves.count);
      for (let at = bottom; at < scratch.length; at += 2) {
        this.leaves.push(scratch.array[at] as number, scratch.array[at + 1] as number);
      }
      this.leaves.end();
    }
    scratch.length = bottom;
    return this.sharedNumbers.array[leaf] as number;
  }

  private valueOf(cells: Uint32Array, value: number, sliceEnds: number, words: RuleWords): number {
    if (value < NO_MATCH) return words.words[words.first + value] as number;
    return value === NO_MATCH ? NO_MATCH : this.slice(cells, value - SLICE, sliceEnds, words);
  }

  private slice(cells: Uint32Array, slice: number, ends: number, { words, first }: RuleWords): number {
    const { scratch } = this;
    const bottom = scratch.length;
    const begin = ends + (cells[SEGMENT.slices] as number);
    const end = begin + 2 * (cells[ends + slice] as number);
    for (let at = begin + (slice === 0 ? 0 : 2 * (cells[ends + slice - 1] as number)); at < end; at += 2) {
      const value = cells[at + 1] as number;
      scratch.push(cells[at] as number);
      scratch.push(value === NO_MATCH ? NO_MATCH : (words[first + value] as number));
    }
    const known = this.knownSlices.count;
    const number = this.knownSlices.intern(scratch.array, bottom, scratch.length);
    if (number === known) {
      for (let at = bottom; at < scratch.length; at += 2) {
        this.slices.push(scratch.array[at] as number, scratch.array[at + 1] as number);
      }
      this.slices.end();
    }
    scratch.length = bottom;
    return SLICE + number;
  }
}

/**
 * Maps the port-map numbers of a rule block to port-map numbers of the program. If `numbers` is undefined,
 * port map `n` of the rule block becomes `base + n`.
 */
type LeafNumbers = { readonly base: number; readonly numbers: readonly number[] | undefined };

function leafAt({ base, numbers }: LeafNumbers, leaf: number): number {
  if (leaf === NONE) return NONE;
  return numbers === undefined ? base + leaf : (numbers[leaf] as number);
}

/** An `IntervalPool` under construction. */
class Pool {
  private readonly starts = new GrowingWords();
  private readonly values = new GrowingWords();
  private readonly offsets = new GrowingWords();

  constructor() {
    this.offsets.push(0);
  }

  clear(): void {
    this.starts.length = 0;
    this.values.length = 0;
    this.offsets.length = 1;
  }

  /** The number of maps that `end` has completed. */
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
   * Copies destination maps from a rule block. The rule block contains, in this order, the ends of the maps,
   * the starts of all intervals, and their port maps.
   */
  addMaps(cells: Uint32Array, ends: number, starts: number, intervals: number, leaves: LeafNumbers): void {
    const before = this.starts.length;
    this.starts.append(cells, starts, starts + intervals);
    this.values.reserve(intervals);
    const values = this.values.array;
    for (let at = 0; at < intervals; at++) {
      values[before + at] = leafAt(leaves, cells[starts + intervals + at] as number);
    }
    this.values.length += intervals;
    for (let at = ends; at < starts; at++) this.offsets.push(before + (cells[at] as number));
  }

  /**
   * Copies port maps without source-port maps from a rule block. The rule block contains the ends of the port
   * maps, and then pairs of start key and rule number.
   */
  addLeaves(cells: Uint32Array, ends: number, count: number, { words, first }: RuleWords): void {
    const before = this.starts.length;
    const from = ends + count;
    const intervals = count === 0 ? 0 : (cells[from - 1] as number);
    this.starts.reserve(intervals);
    this.values.reserve(intervals);
    const starts = this.starts.array;
    const values = this.values.array;
    for (let at = 0; at < intervals; at++) {
      const value = cells[from + 2 * at + 1] as number;
      starts[before + at] = cells[from + 2 * at] as number;
      values[before + at] = value === NO_MATCH ? NO_MATCH : (words[first + value] as number);
    }
    this.starts.length += intervals;
    this.values.length += intervals;
    for (let at = ends; at < from; at++) this.offsets.push(before + (cells[at] as number));
  }

  trimmed(): Program['leaves'] {
    return { starts: this.starts.trimmed(), values: this.values.trimmed(), offsets: this.offsets.trimmed() };
  }
}
