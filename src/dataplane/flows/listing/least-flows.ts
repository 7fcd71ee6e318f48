import { u32At } from '#arrays/read.js';
import { FLOW_BYTES, FLOW_KEY_BYTES } from '#dataplane/abi/flow.js';

const WORDS = FLOW_BYTES / 4;
const KEY_WORDS = FLOW_KEY_BYTES / 4;

/** Collects the `limit` flows with the lowest keys. Of two flows with the same key, keeps the later one. */
export class LeastFlows {
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

  constructor(limit: number, after: Uint8Array | null) {
    this.#limit = limit;
    this.#after = after === null ? null : new Uint32Array(after.slice().buffer);
    this.#words = new Uint32Array(2 * (limit + 1) * WORDS);
  }

  offer(words: Uint32Array, at: number): void {
    if (this.#after !== null && compareKeys(words, at, this.#after, 0) <= 0) return;
    if (this.#bound !== null && compareKeys(words, at, this.#bound, 0) >= 0) {
      this.#more = true;
      return;
    }
    if ((this.#count + 1) * WORDS > this.#words.length) this.#keepLeast();
    this.#words.set(words.subarray(at, at + WORDS), this.#count++ * WORDS);
  }

  /** Returns the flows by ascending key. `next`: the key after which the next page begins, or null. */
  page(): { readonly words: Uint32Array<ArrayBuffer>; readonly next: Uint8Array | null } {
    this.#keepLeast();
    const words = this.#words.slice(0, this.#count * WORDS);
    const last = (this.#count - 1) * WORDS;
    const next = this.#more && last >= 0 ? new Uint8Array(words.slice(last, last + KEY_WORDS).buffer) : null;
    return { words, next };
  }

  #keepLeast(): void {
    const words = this.#words;
    const order = Array.from({ length: this.#count }, (_, index) => index).sort(
      (a, b) => compareKeys(words, a * WORDS, words, b * WORDS) || a - b,
    );
    const distinct = order.filter((flow, index) => {
      const next = order[index + 1];
      return next === undefined || compareKeys(words, flow * WORDS, words, next * WORDS) !== 0;
    });
    const kept = distinct.slice(0, this.#limit);
    const bound = distinct[this.#limit];
    const copy = new Uint32Array(kept.length * WORDS);
    for (const [index, flow] of kept.entries())
      copy.set(words.subarray(flow * WORDS, (flow + 1) * WORDS), index * WORDS);
    if (bound !== undefined) {
      this.#more = true;
      this.#bound = words.slice(bound * WORDS, bound * WORDS + KEY_WORDS);
    }
    words.set(copy);
    this.#count = kept.length;
  }
}

function compareKeys(a: Uint32Array, at: number, b: Uint32Array, bt: number): number {
  for (let word = 0; word < KEY_WORDS; word++) {
    const left = u32At(a, at + word);
    const right = u32At(b, bt + word);
    if (left !== right) return left < right ? -1 : 1;
  }
  return 0;
}
