import { PATTERNS, regionsFor } from './grant-layout.js';

/** Counts of the table of learned addresses, and the free lines of its sets. Not read by the kernel. */
export class Ledger {
  /** Indexes of free lines, in the first `#freeLines` words. */
  readonly #free: Uint32Array;
  #freeLines = 0;
  /** Number of addresses that are granted to each pattern. */
  readonly #holdings = new Uint32Array(PATTERNS);
  #count = 0;
  /** Whether a pattern that has many addresses leaves the last part of the table to other patterns. */
  isShared = false;

  constructor(capacity: number) {
    const { sets, end } = regionsFor(capacity);
    this.#free = new Uint32Array(end - sets);
  }

  /** The number of addresses that have a grant. */
  get count(): number {
    return this.#count;
  }

  addAddress(): void {
    this.#count++;
  }

  /** Not below 0: a writer that died may have granted an address without counting it. */
  removeAddress(): void {
    this.#count--;
  }

  /** Returns 0 if no line is free. */
  takeLine(): number {
    return this.#freeLines === 0 ? 0 : (this.#free[--this.#freeLines] ?? 0);
  }

  giveLine(line: number): void {
    this.#free[this.#freeLines++] = line;
  }

  heldBy(pattern: number): number {
    return this.#holdings[pattern] ?? 0;
  }

  addHolding(pattern: number): void {
    this.#holdings[pattern] = this.heldBy(pattern) + 1;
  }

  removeHolding(pattern: number): void {
    this.#holdings[pattern] = this.heldBy(pattern) - 1;
  }
}
