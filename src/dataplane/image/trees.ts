import { u32At } from '#arrays/read.js';
import type { IntervalPool } from '#contracts/policy/interval-map.js';
import { NONE } from '#contracts/policy/program.js';
import type { Lines } from './cache-lines.js';
import { addTree, type Resolver } from './tree.js';

/**
 * Adds the interval maps of a pool to the image as search trees, each at its first use. A value `base + n`
 * in a map that refers to this pool stands for interval map number n. `resolve` replaces such a value by
 * `base` + the ref (position) of that map's tree. It leaves values below `base` unchanged.
 */
export class Trees implements Resolver {
  /**
   * `refs[n]` is the ref (position in the image) of the search tree of interval map number n. It is `NONE`
   * until the tree is added to the image.
   */
  private readonly refs: Uint32Array;

  constructor(
    private readonly lines: Lines,
    private readonly pool: IntervalPool,
    private readonly base: number,
    private readonly values?: Resolver,
  ) {
    this.refs = new Uint32Array(Math.max(0, pool.offsets.length - 1)).fill(NONE);
  }

  get isEmpty(): boolean {
    return this.refs.length === 0;
  }

  /**
   * Returns the ref (position in the image) of the search tree of an interval map. The first call for a map
   * adds its tree to the image. Returns `NONE` for the map number `NONE`.
   */
  ref(map: number): number {
    if (map === NONE) return NONE;
    const known = this.refs[map];
    if (known === undefined)
      throw new RangeError(
        `build a program image: interval map ${map} is out of bounds, there are ${this.refs.length} maps`,
      );
    return known === NONE ? this.add(map) : known;
  }

  resolve(from: number, to: number): void {
    const { lines, refs, base } = this;
    let { words } = lines;
    for (let at = from; at < to; at++) {
      const value = u32At(words, at);
      if (value < base || value === NONE) continue;
      let ref = refs[value - base];
      if (ref === undefined || ref === NONE) {
        ref = this.ref(value - base);
        words = lines.words;
      }
      words[at] = base + ref;
    }
  }

  private add(map: number): number {
    const { pool } = this;
    const from = u32At(pool.offsets, map);
    const to = u32At(pool.offsets, map + 1);
    const added = addTree(this.lines, pool, from, to, this.values);
    this.refs[map] = added;
    return added;
  }
}
