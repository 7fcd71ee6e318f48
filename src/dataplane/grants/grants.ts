import { CapacityExceeded, type Grant, type Learned } from '#contracts/datapath/datapath.js';
import type { Slot } from '#dataplane/abi/active-word.js';
import { capacityOf, expiryOf, LINE, timeOf } from './grant-layout.js';
import { Ledger } from './grant-ledger.js';
import type { IsDead } from './grant-sets.js';
import { GrantTable } from './grant-table.js';
import { PatternTable } from './pattern-table.js';

/**
 * Number of cache lines that one call of `sweep` reads while the grant table is at most three quarters full.
 */
const LINES_OF_A_SWEEP = 8_192;
/**
 * Number of cache lines that `sweep` reads between two calls of `yieldToRequests`. Reading them takes some
 * hundred microseconds; requests wait that long.
 */
const LINES_AT_ONCE = 2_048;
/**
 * `isGraceDue` returns true if more than capacity / RESTING_PART removed entries await an RCU grace period.
 */
const RESTING_PART = 16;
/**
 * Nanoseconds for which an expired grant is kept while the table is less than half full. When a flow is
 * classified again, the datapath also accepts expired grants, so the flow is not cut. One day is the longest
 * time that D12 allows.
 */
const KEPT_NS = 86_400_000_000_000n;

/**
 * Addresses that the DNS proxy learned for hostname patterns (D12), in memory that the BPF programs read.
 * All times are on the monotonic clock.
 */
export class Grants {
  readonly #patterns: PatternTable;
  readonly #table: GrantTable;
  readonly #ledger: Ledger;
  #refused = 0;

  /**
   * `used` are the slots of the programs that an earlier process put in force, or kept as a base, and that
   * this process adopted. If an earlier process removed grants, a grace period must have passed since then.
   */
  constructor(
    memory: {
      readonly grants: Uint32Array;
      readonly patterns: Uint32Array;
      readonly thirdNames?: Uint32Array | undefined;
    },
    options: {
      readonly capacity: number;
      readonly used: readonly Slot[];
      readonly random: Uint32Array;
    },
  ) {
    const { capacity, used, random } = options;
    this.#ledger = new Ledger(capacity);
    this.#patterns = new PatternTable(memory.patterns, used, memory.thirdNames);
    this.#table = GrantTable.recover(memory.grants, capacity, random, this.#isDeadAt(0), this.#ledger);
    this.#noteShared();
  }

  get addresses(): { readonly entries: number; readonly capacity: number } {
    return { entries: this.#table.count, capacity: this.#table.capacity };
  }

  get patterns(): { readonly entries: number; readonly capacity: number } {
    return { entries: this.#patterns.count, capacity: this.#patterns.capacity };
  }

  /**
   * Number of grants that were refused because the table had no room, since this object was created. A grant
   * is one address for one hostname pattern.
   */
  get refused(): number {
    return this.#refused;
  }

  /**
   * True if removed addresses block more than one sixteenth of the capacity. The caller should then wait for
   * an RCU grace period and call `afterGrace`, which makes their places available again.
   */
  get isGraceDue(): boolean {
    return this.#table.resting * RESTING_PART > this.#table.capacity;
  }

  /**
   * Grants addresses to hostname patterns. Returns the number of grants that were refused for lack of room.
   * Skips a pattern that the policy of no slot has: a new policy has removed the pattern after the DNS
   * lookup.
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
    // Try the refused grants a second time. Meanwhile another pattern of this call may have added the same
    // address. A pattern that is over its share of the table may then also get a grant for that address.
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
   * Copies the grants of another grant table. Both tables must use the same pattern numbers. No process may
   * write to the other table any more.
   */
  learnFrom(words: Uint32Array): void {
    const isDead = this.#isDeadAt(0);
    const other = GrantTable.recover(words, capacityOf(words.length / LINE.words), new Uint32Array(4), isDead);
    for (const { address, pattern, expiry } of other.entries()) {
      if (!this.#table.add(address, pattern, expiry, isDead)) this.#refused++;
    }
  }

  /** Returns the texts of the hostname patterns that have an unexpired grant for an address. */
  patternsOf(address: number, nowNs: bigint): readonly string[] {
    const now = expiryOf(nowNs);
    return this.#table.grantsOf(address).flatMap(([pattern, expiry]) => {
      const text = expiry > now && this.#patterns.isLive(pattern) ? this.#patterns.textOf(pattern) : undefined;
      return text === undefined ? [] : [text];
    });
  }

  /**
   * Returns the unexpired grants, grouped by hostname pattern. Leaves out a pattern of the adopted program
   * (which an earlier process put in force) whose text this process does not know yet.
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
   * Makes room for the hostname patterns of a policy; must be called before `fill`. If that requires the
   * numbers of retired patterns (which no slot uses any more), removes their grants and calls
   * `awaitGracePeriod`. Throws `CapacityExceeded` if too few numbers are free even then.
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
   * Stores which hostname patterns the compiled policy in one slot has. `makeRoom` must be called before, and
   * no packet may read the slot. Calls `yieldToRequests` between parts of the work, and that function may add
   * grants.
   */
  fill(slot: Slot, patterns: readonly string[], yieldToRequests: () => void = () => {}): void {
    this.#patterns.fill(slot, patterns, yieldToRequests);
    this.#noteShared();
  }

  /** See `PatternTable.activated`. */
  activated(used: readonly Slot[]): void {
    this.#patterns.activated(used);
    this.#noteShared();
  }

  /** See `PatternTable.useThird`. */
  useThirdNames(names: Uint32Array | undefined): void {
    this.#patterns.useThird(names);
  }

  /**
   * Removes expired grants, and grants of hostname patterns that the policy of no slot contains. Each
   * call walks through a part of the table, or the whole table if it is more than three quarters full. Calls
   * `yieldToRequests` during long work, and that function may add grants.
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

  /** Removes the grants of retired hostname patterns, which no policy uses any more, from the whole table. */
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
