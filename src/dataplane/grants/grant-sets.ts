import { LINE, MAX_SET_LINES, SET_LINE, SET_PLACES } from './grant-layout.js';
import type { Ledger } from './grant-ledger.js';
import type { SharedMemory } from './memory.js';

/** Returns true if a grant may be removed: it has expired, or its hostname pattern is no longer in use. */
export type IsDead = (pattern: number, expiry: number) => boolean;

/**
 * The sets of grants. An address that is granted to more than one hostname pattern has a set: a linked list
 * of cache lines (`struct grant_set`).
 */
export class GrantSets {
  readonly #resting: number[] = [];

  constructor(
    private readonly memory: SharedMemory,
    private readonly ledger: Ledger,
  ) {}

  get resting(): number {
    return this.#resting.length;
  }

  /**
   * Makes the cache lines of dropped sets available for new sets. After the last call of `drop`, the caller
   * must wait for an RCU grace period before it calls this method.
   */
  afterGrace(): void {
    for (const line of this.#resting) this.ledger.freeLine(line);
    this.#resting.length = 0;
  }

  /**
   * Makes a set for an address with grants of two hostname patterns. Each argument is a pair of pattern
   * number and expiry. Returns the index of the cache line of the set, or 0 if no line is free.
   */
  make(first: readonly [number, number], second: readonly [number, number]): number {
    const line = this.#allocateLine();
    if (line === 0) return 0;
    this.memory.storeLong(this.#long(line, 0), ...first);
    this.memory.storeLong(this.#long(line, 1), ...second);
    return line;
  }

  /**
   * Adds a grant to the set of an address, or extends the expiry of the grant that the pattern already has.
   * Returns false if the set is full, or if it needs one more cache line and no line is free.
   */
  add(set: number, pattern: number, expiry: number, isDead: IsDead): boolean {
    let room = -1;
    let last = set;
    let lines = 0;
    for (const line of this.lines(set)) {
      last = line;
      lines++;
      for (let place = 0; place < SET_PLACES; place++) {
        const long = this.#long(line, place);
        const empty = this.memory.isZero(long);
        if (!empty && this.memory.low(long) === pattern) {
          if (this.memory.high(long) < expiry) this.memory.storeLong(long, pattern, expiry);
          return true;
        }
        if (room < 0 && (empty || isDead(this.memory.low(long), this.memory.high(long)))) room = long;
      }
    }
    if (room >= 0) {
      if (!this.memory.isZero(room)) this.ledger.removeHolding(this.memory.low(room));
      this.memory.storeLong(room, pattern, expiry);
      this.ledger.addHolding(pattern);
      return true;
    }
    if (lines === MAX_SET_LINES) return false;
    const added = this.#allocateLine();
    if (added === 0) return false;
    this.memory.storeLong(this.#long(added, 0), pattern, expiry);
    this.memory.storeWord(last * LINE.words + SET_LINE.next, added);
    this.ledger.addHolding(pattern);
    return true;
  }

  /**
   * Removes the grants of a set (the grants of one address) for which `isDead` returns true. Returns true if
   * the set has no grant left.
   */
  prune(set: number, isDead: IsDead): boolean {
    let left = 0;
    for (const line of this.lines(set)) {
      for (let place = 0; place < SET_PLACES; place++) {
        const long = this.#long(line, place);
        if (this.memory.isZero(long)) continue;
        if (isDead(this.memory.low(long), this.memory.high(long))) {
          this.ledger.removeHolding(this.memory.low(long));
          this.memory.storeLong(long, 0, 0);
        } else left++;
      }
    }
    return left === 0;
  }

  /**
   * Frees a set of grants (hostname patterns of one address) to which no address refers any more. Its cache
   * lines are reused only after an RCU grace period, because BPF programs may still read them.
   */
  drop(set: number): void {
    for (const line of this.lines(set)) this.#resting.push(line);
  }

  *lines(set: number): Generator<number> {
    for (let line = set, count = 0; line !== 0 && count < MAX_SET_LINES; count++) {
      yield line;
      line = this.memory.word(line * LINE.words + SET_LINE.next);
    }
  }

  *grants(set: number): Generator<readonly [pattern: number, expiry: number]> {
    for (const line of this.lines(set)) {
      for (let place = 0; place < SET_PLACES; place++) {
        const long = this.#long(line, place);
        if (!this.memory.isZero(long)) yield [this.memory.low(long), this.memory.high(long)];
      }
    }
  }

  #allocateLine(): number {
    const line = this.ledger.allocateLine();
    if (line === 0) return 0;
    this.memory.words.fill(0, line * LINE.words, (line + 1) * LINE.words);
    return line;
  }

  #long(line: number, place: number): number {
    return line * LINE.longs + SET_LINE.grants + place;
  }
}
