import { largest, smallest } from '#arrays/extremes.js';
import { f64At, itemAt, u32At } from '#arrays/read.js';
import type { Point, Span } from './address-space.js';
import type { Region } from './comparison.js';
import type { ValueSet } from './pieces.js';

/** The maximum number of regions in one index: its sets are bit masks of this length. */
const INDEXED_REGIONS = 1_024;
/** Regions with this number of places between first and last source are in indexes of their own. */
const WIDE = 2 ** 12;
const BITS = 32;

/**
 * Returns the place of an address, or of the end of a span. The place of an address is at least that of each
 * bound of a region up to the address, and below that of each later bound.
 */
export type PlaceOf = (point: Point) => number;

/**
 * Finds the regions that have given flows, by their sources, destinations and keys. Sources and destinations
 * are places of `PlaceOf`.
 */
export class RegionIndex {
  readonly #sources: AxisIndex;
  readonly #destinations: AxisIndex;
  readonly #keys: AxisIndex;
  readonly #ofSource: Uint32Array;
  readonly #found: Uint32Array;
  readonly firstSource: number;
  readonly lastSource: number;

  /** At most `INDEXED_REGIONS` regions, and at least one. */
  constructor(
    private readonly regions: readonly Region[],
    placeOf: PlaceOf,
  ) {
    const words = Math.ceil(regions.length / BITS);
    const boundsOf = (spans: readonly Span[]): number[] => {
      const bounds: number[] = [];
      for (const { start, end } of spans) bounds.push(placeOf(start), placeOf(end));
      return bounds;
    };
    this.#sources = new AxisIndex(
      regions.map(({ sources }) => boundsOf(sources)),
      words,
    );
    this.#destinations = new AxisIndex(
      regions.map(({ destinations }) => boundsOf(destinations)),
      words,
    );
    this.#keys = new AxisIndex(
      regions.map(({ keys }) => keys),
      words,
    );
    this.#ofSource = new Uint32Array(words);
    this.#found = new Uint32Array(words);
    const hulls = regions.map((region) => hullOf(region, placeOf));
    this.firstSource = smallest(hulls.map(([first]) => first));
    this.lastSource = largest(hulls.map(([, last]) => last));
  }

  /**
   * Selects the sources for the next calls of `visit`. Returns whether a region (set of changed flows)
   * contains one of them.
   */
  select(source: number, lastSource: number): boolean {
    return this.#sources.keep(this.#ofSource.fill(0xffff_ffff), source, lastSource);
  }

  /**
   * Calls `visit` with each region that has flows from the selected sources to places from `destination` to
   * `lastDestination` with keys from `key` to `lastKey`.
   */
  visit(
    destination: number,
    lastDestination: number,
    key: number,
    lastKey: number,
    visit: (region: Region) => void,
  ): void {
    const found = this.#found;
    found.set(this.#ofSource);
    if (!this.#destinations.keep(found, destination, lastDestination)) return;
    if (!this.#keys.keep(found, key, lastKey)) return;
    for (let word = 0; word < found.length; word++)
      for (let rest = u32At(found, word); rest !== 0; rest &= rest - 1)
        visit(itemAt(this.regions, word * BITS + BITS - 1 - Math.clz32(rest & -rest)));
  }
}

/**
 * Divides regions into lists for indexes. Regions with few sources near each other are in the same list, so
 * that most flows are outside of most lists.
 */
export function bySources(regions: readonly Region[], placeOf: PlaceOf): Region[][] {
  const sorted = regions.map((region) => ({ region, hull: hullOf(region, placeOf) }));
  const isWide = ({ hull: [first, last] }: (typeof sorted)[number]): boolean => last - first >= WIDE;
  const narrow = sorted.filter((one) => !isWide(one)).sort((one, other) => one.hull[0] - other.hull[0]);
  return [sorted.filter(isWide), narrow].flatMap((some) => {
    const lists: Region[][] = [];
    for (let from = 0; from < some.length; from += INDEXED_REGIONS)
      lists.push(some.slice(from, from + INDEXED_REGIONS).map(({ region }) => region));
    return lists;
  });
}

/** Returns the first and the last source of a region. */
function hullOf({ sources }: Region, placeOf: PlaceOf): readonly [first: number, last: number] {
  return [placeOf(itemAt(sources, 0).start), placeOf(itemAt(sources, sources.length - 1).end) - 1];
}

/** For each interval between two bounds of one axis, the set of the regions that have its values. */
class AxisIndex {
  /** The first values of the intervals, ascending. The values before the first interval are in no region. */
  readonly #starts: Float64Array;
  /** The sets of the intervals, `#words` words each. */
  readonly #sets: Uint32Array;

  /** Creates the index. `regions`: for each region, its values of this field as a `ValueSet`. */
  constructor(
    regions: readonly ValueSet[],
    readonly words: number,
  ) {
    this.#starts = ascending(regions);
    this.#sets = new Uint32Array(this.#starts.length * words);
    // The intervals of one region do not overlap. So each bound toggles the bit of its region, and the sum of
    // all bounds up to an interval is its set.
    for (const [region, intervals] of regions.entries())
      for (const bound of intervals) {
        const at = this.#indexOf(bound) * words + (region >>> 5);
        this.#sets[at] = u32At(this.#sets, at) ^ (1 << (region & (BITS - 1)));
      }
    for (let at = words; at < this.#sets.length; at++)
      this.#sets[at] = u32At(this.#sets, at) ^ u32At(this.#sets, at - words);
  }

  /** Removes from a set the regions without a value from `first` to `last`. Returns whether one is left. */
  keep(found: Uint32Array, first: number, last: number): boolean {
    const { words } = this;
    const from = this.#indexOf(first);
    const to = first === last ? from : this.#indexOf(last);
    let any = 0;
    for (let word = 0; word < words; word++) {
      let set = 0;
      for (let at = Math.max(from, 0); at <= to; at++) set |= u32At(this.#sets, at * words + word);
      any |= found[word] = u32At(found, word) & set;
    }
    return any !== 0;
  }

  /** Returns the interval that has the value; -1 if the value is below all of them. */
  #indexOf(value: number): number {
    let low = 0;
    let high = this.#starts.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (f64At(this.#starts, middle) <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}

/** Returns the bounds of all sets, each once. */
function ascending(sets: readonly ValueSet[]): Float64Array {
  const bounds = new Float64Array(sets.reduce((sum, set) => sum + set.length, 0));
  let length = 0;
  for (const set of sets) for (const bound of set) bounds[length++] = bound;
  bounds.sort();
  length = 0;
  for (const bound of bounds) if (length === 0 || f64At(bounds, length - 1) !== bound) bounds[length++] = bound;
  return bounds.slice(0, length);
}
