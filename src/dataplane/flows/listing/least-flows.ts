import { u32At } from '#arrays/read.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { FlowLayout } from '#dataplane/abi/flow.js';

/** Collects the `limit` flows with the lowest keys. Of two flows with the same key, keeps the later one. */
export class LeastFlows {
  /** The number of 32-bit words of a flow, and of its key. */
  readonly #flowWords: number;
  readonly #keyWords: number;
  readonly #limit: number;
  readonly #after: Uint32Array | null;
  readonly #words: Uint32Array;
  #count = 0;
  /**
   * Upper bound of the keys: a flow with this key or a higher key is not among the `limit` lowest. Null until
   * more than `limit` flows were offered.
   */
  #bound: Uint32Array | null = null;
  /**
   * True if this object has left out a flow because there were more than `limit`. Then a next page exists.
   */
  #more = false;

  constructor(layout: Pick<FlowLayout<Address>, 'bytes' | 'keyBytes'>, limit: number, after: Uint8Array | null) {
    this.#flowWords = layout.bytes / 4;
    this.#keyWords = layout.keyBytes / 4;
    this.#limit = limit;
    this.#after = after === null ? null : new Uint32Array(after.slice().buffer);
    this.#words = new Uint32Array(2 * (limit + 1) * this.#flowWords);
  }

  offer(words: Uint32Array, at: number): void {
    if (this.#after !== null && this.#compareKeys(words, at, this.#after, 0) <= 0) return;
    if (this.#bound !== null && this.#compareKeys(words, at, this.#bound, 0) >= 0) {
      this.#more = true;
      return;
    }
    if ((this.#count + 1) * this.#flowWords > this.#words.length) this.#keepLeast();
    this.#words.set(words.subarray(at, at + this.#flowWords), this.#count++ * this.#flowWords);
  }

  /** Returns the flows by ascending key. `next`: the key after which the next page begins, or null. */
  page(): { readonly words: Uint32Array<ArrayBuffer>; readonly next: Uint8Array | null } {
    this.#keepLeast();
    const words = this.#words.slice(0, this.#count * this.#flowWords);
    const last = (this.#count - 1) * this.#flowWords;
    const next = this.#more && last >= 0 ? new Uint8Array(words.slice(last, last + this.#keyWords).buffer) : null;
    return { words, next };
  }

  #keepLeast(): void {
    const words = this.#words;
    const order = Array.from({ length: this.#count }, (_, index) => index).sort(
      (a, b) => this.#compareKeys(words, a * this.#flowWords, words, b * this.#flowWords) || a - b,
    );
    const distinct = order.filter((flow, index) => {
      const next = order[index + 1];
      return (
        next === undefined || this.#compareKeys(words, flow * this.#flowWords, words, next * this.#flowWords) !== 0
      );
    });
    const kept = distinct.slice(0, this.#limit);
    const bound = distinct[this.#limit];
    const copy = new Uint32Array(kept.length * this.#flowWords);
    for (const [index, flow] of kept.entries())
      copy.set(words.subarray(flow * this.#flowWords, (flow + 1) * this.#flowWords), index * this.#flowWords);
    if (bound !== undefined) {
      this.#more = true;
      this.#bound = words.slice(bound * this.#flowWords, bound * this.#flowWords + this.#keyWords);
    }
    words.set(copy);
    this.#count = kept.length;
  }

  #compareKeys(a: Uint32Array, at: number, b: Uint32Array, bt: number): number {
    for (let word = 0; word < this.#keyWords; word++) {
      const left = u32At(a, at + word);
      const right = u32At(b, bt + word);
      if (left !== right) return left < right ? -1 : 1;
    }
    return 0;
  }
}
