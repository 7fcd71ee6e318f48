import type { Intervals } from '#contracts/interval-map.js';
import { valueAt } from './interval-search.js';

const SLOT_BITS = 12;

/** Finds the class of a source, with a cache of recent sources. */
export class SourceClasses {
  readonly #sources: Intervals;
  /**
   * An unused slot contains 0. Source 0 belongs to slot 0, whose class is set in the constructor, so no
   * source hits an unused slot.
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
    return this.#classes[slot] as number;
  }
}
