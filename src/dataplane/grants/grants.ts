import { CapacityExceeded, type Grant, type Learned } from '#contracts/datapath.js';
import { capacityOf, expiryOf, LINE, timeOf } from './grant-layout.js';
import { Ledger } from './grant-ledger.js';
import type { IsDead } from './grant-sets.js';
import { GrantTable } from './grant-table.js';
import { PatternTable, type Slot } from './pattern-table.js';

/** Number of cache lines that one sweep reads while the grant table is at most three quarters full. */
const LINES_OF_A_SWEEP = 8_192;
/**
 * Number of cache lines that are swept between two calls of `yieldToRequests`. Sweeping them takes some
 * hundred microseconds.
 */
const LINES_AT_ONCE = 2_048;
/**
 * Divisor of the capacity: `isGraceDue` is true if more than one sixteenth of the capacity waits for a grace
 * period.
 */
const RESTING_PART = 16;
/**
 * Nanoseconds for which an expired grant is kept while the table is less than half full, so that flows that
 * the grant admitted continue. One day is the longest time that D12 allows.
 */
const KEPT_NS = 86_400_000_000_000n;

/**
 * Learned addresses (D12) by pattern, in memory that the kernel reads. All times are on the monotonic clock.
 */
export class Grants {
  readonly #patterns: PatternTable;
  readonly #table: GrantTable;
  readonly #ledger: Ledger;
  #refused = 0;

  /**
   * `inForce` is the slot of the adopted program; undefined if no program was adopted. A grace period must
   * have passed since an earlier process removed grants.
   */
  constructor(
    memory: { readonly grants: Uint32Array; readonly patterns: Uint32Array },
    options: {
      readonly capacity: number;
      readonly inForce: Slot | undefined;
      readonly random: Uint32Array;
    },
  ) {
    const { capacity, inForce, random } = options;
    this.#ledger = new Ledger(capacity);
    this.#patterns = new PatternTable(memory.patterns, inForce);
    this.#table = GrantTable.recover(memory.grants, capacity, random, this.#isDeadAt(0), this.#ledger);
    this.#noteShared();
  }

  get addresses(): { readonly entries: number; readonly capacity: number } {
    return { entries: this.#table.count, capacity: this.#table.capacity };
  }

  get patterns(): { readonly entries: number; readonly capacity: number } {
    return { entries: this.#patterns.count, capacity: this.#patterns.capacity };
  }

  /** Number of addresses that were not granted because the table had no room. */
  get refused(): number {
    return this.#refused;
  }

  /**
   * True if more than one sixteenth of the capacity waits for reuse. The caller should then wait for a grace
   * period and call `afterGrace`.
   */
  get isGraceDue(): boolean {
    return this.#table.resting * RESTING_PART > this.#table.capacity;
  }

  /**
   * Grants addresses to patterns. Returns the number of addresses that were refused for lack of room. Skips a
   * pattern that neither slot has: a new policy removed the pattern after the DNS lookup.
   */
  add(grants: readonly Grant[], nowNs: bigint): number {
    const isDead = this.#isDeadAt(expiryOf(nowNs));
    const refused: (() => boolean)[] = [];
    for (const { pattern, addresses, expiresAtNs } of grants) {
      const number = this.#patterns.numberOf(pattern);
      if (number === undefined) continue;
      const expiry = expiryOf(expiresAtNs);
      for (const address of addresses) {
        if (this.#table.add(address, number, expiry, isDead)) continue;
        refused.push(() => this.#table.add(address, number, expiry, isDead));
      }
    }
    // Second attempt for the refused addresses. Another pattern of the same call may have added an address
    // meanwhile; then a pattern that is over its share of the table may also use the address.
    const left = refused.filter((add) => !add()).length;
    this.#refused += left;
    return left;
  }

  remove(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): void {
    for (const { pattern, addresses } of grants) {
      const number = this.#patterns.numberOf(pattern);
      if (number === undefined) continue;
      for (const address of addresses) this.#table.prune(address, (found) => found === number);
    }
  }

  /**
   * Copies the grants of another grant table, whose pattern numbers are the same. No process may write to
   * that other table any more.
   */
  learnFrom(words: Uint32Array): void {
    const isDead = this.#isDeadAt(0);
    const other = GrantTable.recover(words, capacityOf(words.length / LINE.words), new Uint32Array(4), isDead);
    for (const { address, pattern, expiry } of other.entries()) {
      if (!this.#table.add(address, pattern, expiry, isDead)) this.#refused++;
    }
  }

  /** Returns the texts of the patterns that have an unexpired grant for an address. */
  patternsOf(address: number, nowNs: bigint): readonly string[] {
    const now = expiryOf(nowNs);
    return this.#table.grantsOf(address).flatMap(([pattern, expiry]) => {
      const text = expiry > now && this.#patterns.isLive(pattern) ? this.#patterns.textOf(pattern) : undefined;
      return text === undefined ? [] : [text];
    });
  }

  /**
   * Returns the unexpired grants by pattern. Leaves out a pattern of the adopted program whose text is not
   * known yet.
   */
  learned(nowNs: bigint): readonly Learned[] {
    const now = expiryOf(nowNs);
    const found = new Map<number, { addresses: number[]; expiries: bigint[] }>();
    for (const { address, pattern, expiry } of this.#table.entries()) {
      if (expiry <= now || !this.#patterns.isLive(pattern)) continue;
      const columns = found.get(pattern) ?? { addresses: [], expiries: [] };
      found.set(pattern, columns);
      columns.addresses.push(address);
      columns.expiries.push(timeOf(expiry));
    }
    return [...found].flatMap(([number, { addresses, expiries }]) => {
      const pattern = this.#patterns.textOf(number);
      if (pattern === undefined) return [];
      return [{ pattern, addresses: Uint32Array.from(addresses), expiresAtNs: BigUint64Array.from(expiries) }];
    });
  }

  /**
   * Makes room for the patterns of a policy that is about to be staged; must be called before `fill`. Calls
   * `awaitGracePeriod` if pattern numbers must be freed for that. Throws `CapacityExceeded` if the room is
   * not enough.
   */
  makeRoom(patterns: readonly string[], awaitGracePeriod: () => void): void {
    if (this.#patterns.shortage(patterns) > 0) {
      this.#clear();
      awaitGracePeriod();
      this.afterGrace();
    }
    const shortage = this.#patterns.shortage(patterns);
    const { capacity } = this.#patterns;
    if (shortage > 0) throw new CapacityExceeded('patterns', capacity + shortage, capacity);
  }

  /**
   * Stores for one slot which patterns its compiled policy has. Must be called after `makeRoom`, and no
   * packet may read the slot. Calls `yieldToRequests` between parts of the work; `yieldToRequests` may add
   * grants.
   */
  fill(slot: Slot, patterns: readonly string[], yieldToRequests: () => void = () => {}): void {
    this.#patterns.fill(slot, patterns, yieldToRequests);
    this.#noteShared();
  }

  /**
   * Must be called after the policy in this slot was put in force. Retires the patterns that only the other
   * slot has.
   */
  activated(slot: Slot): void {
    this.#patterns.activated(slot);
    this.#noteShared();
  }

  /**
   * Removes expired grants and grants of patterns that are not in use. Sweeps a part of the table at each
   * call, but the whole table if it is more than three quarters full. Calls `yieldToRequests` during long
   * work; `yieldToRequests` may add grants.
   */
  sweep(nowNs: bigint, yieldToRequests: () => void = () => {}): void {
    this.#clear(yieldToRequests);
    const { entries, capacity } = this.addresses;
    const kept = entries * 2 < capacity ? KEPT_NS : 0n;
    const isDead = this.#isDeadAt(nowNs > kept ? expiryOf(nowNs - kept) : 0);
    this.#sweep(entries * 4 > capacity * 3 ? this.#table.lines : LINES_OF_A_SWEEP, isDead, yieldToRequests);
  }

  afterGrace(): void {
    this.#table.afterGrace();
    this.#patterns.afterGrace();
  }

  /** Removes the grants of retired patterns from the whole table. */
  #clear(yieldToRequests?: () => void): void {
    if (!this.#patterns.hasRetired) return;
    this.#sweep(this.#table.lines, this.#isDeadAt(0), yieldToRequests);
    this.#patterns.cleared();
  }

  #sweep(lines: number, isDead: IsDead, yieldToRequests: () => void = () => {}): void {
    for (let left = lines; left > 0; left -= LINES_AT_ONCE) {
      this.#table.sweep(Math.min(left, LINES_AT_ONCE), isDead);
      yieldToRequests();
    }
  }

  #noteShared(): void {
    this.#ledger.isShared = this.#patterns.count > 1;
  }

  #isDeadAt(expiry: number): IsDead {
    return (pattern, until) => until <= expiry || !this.#patterns.isLive(pattern);
  }
}
