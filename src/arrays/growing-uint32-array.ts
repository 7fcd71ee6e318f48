import { u32At } from './read.js';
import { sharedWords } from './shared-array.js';

/** The minimum length for a copy by `TypedArray.set`. For shorter arrays, a loop is faster. */
const LONG = 256;

/**
 * A Uint32Array that grows. Growth replaces `array`, so do not keep a reference to `array` during a call that
 * may append.
 */
export class GrowingUint32Array {
  array: Uint32Array;
  length = 0;

  constructor(capacity = 1024) {
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
   * Returns a copy of the pushed elements without unused capacity. A large copy is in shared memory, so that
   * threads need not copy it.
   */
  trimmed(): Uint32Array {
    const shared = sharedWords(this.length);
    shared.set(this.array.subarray(0, this.length));
    return shared;
  }
}
