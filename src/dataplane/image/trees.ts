import { u32At } from '#arrays/read.js';
import type { IntervalPool } from '#contracts/interval-map.js';
import { NONE } from '#contracts/program.js';
import type { Lines } from './cache-lines.js';
import { addTree, type Resolver } from './tree.js';

/**
 * Lays out the interval maps of a pool as search trees, each at its first use. In the maps that refer to this
 * pool, a value of `base` or more is `base` + the number of an interval map. `resolve` replaces such a value
 * by `base` + the ref (position) of that map's tree, and leaves smaller values unchanged.
 */
export class Trees implements Resolver {
  /**
   * By the number of an interval map: the ref (position) of its tree in the image; `NONE` if the map is not
   * laid out yet.
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
   * Returns the ref (position in the image) of an interval map's tree, and adds the tree if it is not there
   * yet. For `NONE` returns `NONE`.
   */
  ref(map: number): number {
    if (map === NONE) return NONE;
    const known = this.refs[map];
    if (known === undefined) throw new RangeError(`the program has no map ${map} of ${this.refs.length}`);
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
