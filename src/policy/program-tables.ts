import { Budget } from './budget.js';
import { Cells } from './cells.js';
import { NameTable } from './name-table.js';
import { MAP, NO_MATCH, NONE, type Program, SLICE } from './program.js';
import { SEGMENT, type Segment } from './segment.js';
import { Sequences } from './sequences.js';

type Tables = Pick<Program, 'segments' | 'destinations' | 'leaves' | 'slices' | 'names' | 'nameLeaves'>;

/** The words of the rules of a segment: of rule `n` the one at `first + n`. */
export type RuleWords = { readonly words: Uint32Array; readonly first: number };

/** The tables of a program, put together from segments. Leaves that several segments may have are kept once. */
export class ProgramTables {
  private readonly maps = new Cells();
  private readonly wildcards = new Cells();
  private readonly named = new Cells();
  private readonly destinations = new Pool();
  private readonly leaves = new Pool();
  private readonly slices = new Pool();
  private readonly names = new NameTable();
  private readonly sharedLeaves = new Sequences(Budget.unlimited, 'leaves', 1);
  /** Of each shared leaf its number among all leaves. */
  private readonly sharedNumbers = new Cells();
  private readonly knownSlices = new Sequences(Budget.unlimited, 'slices', 1);
  private readonly scratch = new Cells();
  private readonly own = new Cells();

  /** Adds a segment, and answers its number. `shared`: another segment has some of its rules too. */
  add({ cells, names }: Segment, words: RuleWords, shared: boolean): number {
    const part = (place: number): number => cells[place] as number;
    const number = this.maps.length;
    const firstMap = this.destinations.count;
    const maps = part(SEGMENT.maps);
    const intervals = part(SEGMENT.destinations);
    const mapEnds = SEGMENT.length;
    const leafEnds = mapEnds + maps + 2 * intervals;
    const leaf = this.leavesOf(cells, leafEnds, words, shared);
    const values = mapEnds + maps + intervals;
    for (let at = values; at < leafEnds; at++) {
      const value = cells[at] as number;
      this.destinations.push(cells[at - intervals] as number, value === NONE ? NONE : leaf(value));
    }
    this.destinations.endMany(cells, mapEnds, mapEnds + maps, intervals);
    const map = part(SEGMENT.map);
    const wildcard = part(SEGMENT.wildcard);
    const named = part(SEGMENT.named);
    this.maps.push(map === NONE ? NONE : firstMap + map);
    this.wildcards.push(wildcard === NONE ? NONE : leaf(wildcard));
    this.named.push(named === NONE ? NONE : leaf(named));
    if (names.length === 0) return number;
    const numbered = names.map(({ pattern, leaf: found }) => ({
      name: this.names.number(pattern),
      leaf: found < MAP ? leaf(found) : found + firstMap,
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

  /** Adds the leaves of a segment, and answers what their numbers become. */
  private leavesOf(cells: Uint32Array, ends: number, words: RuleWords, shared: boolean): (leaf: number) => number {
    const count = cells[SEGMENT.leaves] as number;
    const first = ends + count;
    const sliceEnds = first + 2 * (cells[SEGMENT.leafIntervals] as number);
    const base = this.leaves.count;
    this.own.length = 0;
    let from = first;
    for (let leaf = 0; leaf < count; leaf++) {
      const end = first + 2 * (cells[ends + leaf] as number);
      if (shared) this.own.push(this.sharedLeaf(cells, from, end, sliceEnds, words));
      else this.addLeaf(cells, from, end, sliceEnds, words);
      from = end;
    }
    const own = this.own.array;
    return shared ? (leaf) => own[leaf] as number : (leaf) => base + leaf;
  }

  private addLeaf(cells: Uint32Array, from: number, end: number, sliceEnds: number, words: RuleWords): void {
    for (let at = from; at < end; at += 2) {
      this.leaves.push(cells[at] as number, this.valueOf(cells, cells[at + 1] as number, sliceEnds, words));
    }
    this.leaves.end();
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

  private valueOf(cells: Uint32Array, value: number, sliceEnds: number, { words, first }: RuleWords): number {
    if (value < NO_MATCH) return words[first + value] as number;
    return value === NO_MATCH ? NO_MATCH : this.slice(cells, value - SLICE, sliceEnds, { words, first });
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

/** An `IntervalPool` that grows. */
class Pool {
  private readonly starts = new Cells();
  private readonly values = new Cells();
  private readonly offsets = new Cells();

  constructor() {
    this.offsets.push(0);
  }

  /** How many maps have ended. */
  get count(): number {
    return this.offsets.length - 1;
  }

  push(start: number, value: number): void {
    this.starts.push(start);
    this.values.push(value);
  }

  /** Ends a map. */
  end(): void {
    this.offsets.push(this.starts.length);
  }

  /** Ends maps whose ends stand in `from` … `to`, counted from the first of the last `added` intervals. */
  endMany(ends: Uint32Array, from: number, to: number, added: number): void {
    const base = this.starts.length - added;
    for (let at = from; at < to; at++) this.offsets.push(base + (ends[at] as number));
  }

  trimmed(): Program['leaves'] {
    return { starts: this.starts.trimmed(), values: this.values.trimmed(), offsets: this.offsets.trimmed() };
  }
}
