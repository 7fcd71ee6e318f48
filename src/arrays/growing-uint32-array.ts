import { u32At } from './read.js';
import { sharedWords } from './shared-array.js';

/**
 * If more elements than this are appended, `TypedArray.set` copies them. For fewer elements, a loop is
 * faster.
 */
const LONG = 256;

/**
 * A Uint32Array that grows. When it grows, `array` is replaced. So read `array` again after each call that
 * may append elements.
 */
export class GrowingUint32Array {
  array: Uint32Array;
  length = 0;

  constructor(capacity = 64) {
    this.array = new Uint32Array(capacity);
  }

  push(value: number): void {
    if (this.length === this.array.length) this.reserve(1);
    this.array[this.length++] = value;
  }

  append(source: Uint32Array, from: number, to: number): void {
    this.reserve(to - from);
    if (to - from > LONG) this.array.set(source.subarray(from, to), this.length);
    else {
      const { array } = this;
      let at = this.length;
      for (let index = from; index < to; index++) array[at++] = u32At(source, index);
    }
    this.length += to - from;
  }

  /** Makes room for `count` more elements. */
  reserve(count: number): void {
    const need = this.length + count;
    if (need <= this.array.length) return;
    const grown = new Uint32Array(Math.max(need, this.array.length * 2));
    grown.set(this.array.subarray(0, this.length));
    this.array = grown;
  }

  /**
   * Returns a copy of the elements, without unused capacity. A large copy is in shared memory, so that
   * sending it to another thread does not copy it again.
   */
  trimmed(): Uint32Array {
    const shared = sharedWords(this.length);
    shared.set(this.array.subarray(0, this.length));
    return shared;
  }
}
