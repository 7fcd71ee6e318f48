import { type IntervalPool, NONE } from '#policy/program.js';
import type { Lines } from './lines.js';
import { addTree, type Resolve } from './tree.js';

/** The maps of a pool, each laid out when it is first asked for. */
export class Trees {
  /** Of each map its ref; `NONE` where it is not laid out. */
  private readonly refs: Uint32Array;

  constructor(
    private readonly lines: Lines,
    private readonly pool: IntervalPool,
    private readonly resolve?: Resolve,
  ) {
    this.refs = new Uint32Array(Math.max(0, pool.offsets.length - 1)).fill(NONE);
  }

  get isEmpty(): boolean {
    return this.refs.length === 0;
  }

  /** `NONE` stays `NONE`. */
  ref(map: number): number {
    if (map === NONE) return NONE;
    const known = this.refs[map];
    if (known === undefined) throw new RangeError(`the program has no map ${map} of ${this.refs.length}`);
    return known === NONE ? this.add(map) : known;
  }

  /** Of values from `base` on, which say `base` and a map, what is behind `base` becomes a ref. Others stay. */
  resolver(base: number): Resolve {
    const { lines, refs } = this;
    return (from, to) => {
      let { words } = lines;
      for (let at = from; at < to; at++) {
        const value = words[at] as number;
        if (value < base || value === NONE) continue;
        const known = refs[value - base];
        if (known !== undefined && known !== NONE) {
          words[at] = base + known;
          continue;
        }
        const added = this.ref(value - base);
        words = lines.words;
        words[at] = base + added;
      }
    };
  }

  private add(map: number): number {
    const { pool } = this;
    const from = pool.offsets[map] as number;
    const to = pool.offsets[map + 1] as number;
    const added = addTree(this.lines, pool, from, to, this.resolve);
    this.refs[map] = added;
    return added;
  }
}
