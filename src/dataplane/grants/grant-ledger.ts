import { PATTERNS, regionsFor } from './grant-layout.js';

const COUNT = 0;
const FREE_LINES = 1;
const SHARED = 2;
const WORDS = 4;

/** What is counted beside the memory that the kernel reads, for whoever writes there: one at a time (`Gate`). */
export class Ledger {
  readonly #words: Uint32Array;
  /** Lines of sets that nobody uses: the first so many of them. */
  readonly #free: Uint32Array;
  /** How many addresses are granted to each pattern. */
  readonly #holdings: Uint32Array;
  /** Whether a number is a pattern's. */
  readonly live: Uint8Array;
  /** How many patterns had a number. */
  readonly incarnations: Uint32Array;
  /** Numbers of patterns by their digests; see `PatternIndex`. */
  readonly places: Uint32Array;
  readonly shared: SharedArrayBuffer;

  /** For so many addresses and patterns. `shared` is that of another ledger for as many. */
  constructor(capacity: number, patterns = PATTERNS, shared?: SharedArrayBuffer) {
    const { sets, end } = regionsFor(capacity);
    const lines = end - sets;
    const places = 2 ** Math.ceil(Math.log2(2 * patterns));
    const free = WORDS * 4;
    const holdings = free + lines * 4;
    const index = holdings + patterns * 4;
    const incarnations = index + places * 4;
    const live = incarnations + patterns * 4;
    this.shared = shared ?? new SharedArrayBuffer(live + patterns);
    this.#words = new Uint32Array(this.shared, 0, WORDS);
    this.#free = new Uint32Array(this.shared, free, lines);
    this.#holdings = new Uint32Array(this.shared, holdings, patterns);
    this.places = new Uint32Array(this.shared, index, places);
    this.incarnations = new Uint32Array(this.shared, incarnations, patterns);
    this.live = new Uint8Array(this.shared, live, patterns);
  }

  /** Addresses that anything is granted for. */
  get count(): number {
    return this.#words[COUNT] ?? 0;
  }

  addAddress(): void {
    this.#words[COUNT] = this.count + 1;
  }

  /** A writer that died may have granted what it did not count. */
  removeAddress(): void {
    this.#words[COUNT] = Math.max(0, this.count - 1);
  }

  /** Whether a pattern that has much leaves the last part of the table to others. */
  get isShared(): boolean {
    return this.#words[SHARED] === 1;
  }

  set isShared(isShared: boolean) {
    this.#words[SHARED] = isShared ? 1 : 0;
  }

  /** 0 where there is none. */
  takeLine(): number {
    const left = this.#words[FREE_LINES] ?? 0;
    if (left === 0) return 0;
    this.#words[FREE_LINES] = left - 1;
    return this.#free[left - 1] ?? 0;
  }

  giveLine(line: number): void {
    const left = this.#words[FREE_LINES] ?? 0;
    this.#free[left] = line;
    this.#words[FREE_LINES] = left + 1;
  }

  heldBy(pattern: number): number {
    return this.#holdings[pattern] ?? 0;
  }

  addHolding(pattern: number): void {
    this.#holdings[pattern] = this.heldBy(pattern) + 1;
  }

  removeHolding(pattern: number): void {
    this.#holdings[pattern] = Math.max(0, this.heldBy(pattern) - 1);
  }
}
