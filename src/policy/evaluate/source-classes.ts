import { u32At } from '#arrays/read.js';
import type { Intervals } from '#contracts/interval-map.js';
import { valueAt } from './interval-search.js';

const SLOT_BITS = 12;

/** Maps a source address to its class. Caches the classes of recent sources. */
export class SourceClasses {
  readonly #sources: Intervals;
  /**
   * A cache slot contains a source address, and 0 if it is unused. Address 0 can hit only slot 0, and the
   * constructor sets the class of address 0. So no lookup takes an unused slot for a cached source.
   */
  readonly #kept = new Uint32Array(2 ** SLOT_BITS);
  readonly #classes = new Uint32Array(2 ** SLOT_BITS);

  constructor(sources: Intervals) {
    this.#sources = sources;
    this.#classes[0] = valueAt(sources, 0);
  }

  of(source: number): number {
    const slot = Math.imul(source, 0x9e37_79b1) >>> (32 - SLOT_BITS);
    if (this.#kept[slot] !== source) {
      this.#kept[slot] = source;
      this.#classes[slot] = valueAt(this.#sources, source);
    }
    return u32At(this.#classes, slot);
  }
}
