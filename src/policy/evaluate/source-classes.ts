import { u32At } from '#arrays/read.js';
import type { Intervals } from '#contracts/interval-map.js';
import { valueAt } from '#policy/model/interval-search.js';

const SLOT_BITS = 12;

/** Maps a source address to the number of its class. Caches the classes of recent source addresses. */
export class SourceClasses {
  readonly #sources: Intervals;
  /**
   * The source address in each cache slot; 0 marks an unused slot. Address 0 belongs to slot 0 only, and the
   * constructor stores its class there. So `of` never mistakes an unused slot for a cached address.
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
