import { PATTERNS } from './grant-layout.js';

/**
 * Counters of the grant table, and the list of the cache lines that are free for sets of grants (the grants
 * of an address that several patterns share). The ledger is in normal memory of this process; the BPF
 * programs do not read it.
 */
export class Ledger {
  /**
   * Stack of the indexes of cache lines that are free for sets of grants; the first `#freeLines` elements are
   * valid.
   */
  readonly #free: Uint32Array;
  #freeLines = 0;
  /** Number of addresses granted to each hostname pattern, by the number of the pattern. */
  readonly #holdings = new Uint32Array(PATTERNS);
  #count = 0;
  /**
   * True if more than one hostname pattern is in use. The table of DNS grants then reserves its last
   * sixteenth for patterns with few addresses.
   */
  isShared = false;

  constructor(capacity: number) {
    this.#free = new Uint32Array(capacity);
  }

  /** The number of addresses that have at least one grant. */
  get count(): number {
    return this.#count;
  }

  addAddress(): void {
    this.#count++;
  }

  /**
   * Subtracts one address from the count. The count cannot become negative, because `GrantTable.recover`
   * also counts the addresses that an earlier, killed process had added.
   */
  removeAddress(): void {
    this.#count--;
  }

  /** Allocates a cache line for grants of one address to several patterns. Returns 0 if no line is free. */
  allocateLine(): number {
    return this.#freeLines === 0 ? 0 : (this.#free[--this.#freeLines] ?? 0);
  }

  freeLine(line: number): void {
    this.#free[this.#freeLines++] = line;
  }

  holdingsOf(pattern: number): number {
    return this.#holdings[pattern] ?? 0;
  }

  addHolding(pattern: number): void {
    this.#holdings[pattern] = this.holdingsOf(pattern) + 1;
  }

  removeHolding(pattern: number): void {
    this.#holdings[pattern] = this.holdingsOf(pattern) - 1;
  }
}
