import { familyOf } from '#addresses/ip-address.js';
import { putAddress } from '#addresses/memory-words.js';
import { CapacityExceeded, type Grant, type Learned } from '#contracts/datapath/datapath.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import type { Slot } from '#dataplane/abi/active-word.js';
import { capacityOf, expiryOf, HEADER, LINE, timeOf } from './grant-layout.js';
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
  readonly #tables: ReadonlyMap<Family, { readonly table: GrantTable; readonly ledger: Ledger }>;
  #refused = 0;

  /**
   * `used` are the slots of the programs that an earlier process put in force, or kept as a base, and that
   * this process adopted. If an earlier process removed grants, a grace period must have passed since then.
   * `grants` has the table of each family whose addresses can be granted. `random` has the random words of
   * the largest header (`GrantLayout.randomWords`).
   */
  constructor(
    memory: {
      readonly grants: ReadonlyMap<Family, Uint32Array>;
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
    this.#patterns = new PatternTable(memory.patterns, used, memory.thirdNames);
    this.#tables = new Map(
      [...memory.grants].map(([family, words]) => {
        const ledger = new Ledger(capacity);
        return [
          family,
          { table: GrantTable.recover(words, capacity, random, this.#isDeadAt(0), ledger, family), ledger },
        ];
      }),
    );
    this.#noteShared();
  }

  /** The number of addresses of a family that have grants, and the capacity of the table of this family. */
  addressesOf(family: Family): { readonly entries: number; readonly capacity: number } {
    const table = this.#tables.get(family)?.table;
    return { entries: table?.count ?? 0, capacity: table?.capacity ?? 0 };
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
    return this.#all.some(({ resting, capacity }) => resting * RESTING_PART > capacity);
  }

  /**
   * Allows addresses for hostname patterns. Returns the number of addresses that were refused because the
   * table is full. Skips a pattern that no compiled policy has: a new policy has removed the pattern after
   * the DNS lookup.
   */
  add(grants: readonly Grant[], nowNs: bigint): number {
    const isDead = this.#isDeadAt(expiryOf(nowNs));
    const refused: (() => boolean)[] = [];
    for (const { pattern, addresses, expiresAtNs } of grants) {
      const number = this.#patterns.numberOf(pattern);
      if (number === undefined) continue;
      const expiry = expiryOf(expiresAtNs);
      for (const address of addresses) {
        const add = (): boolean => this.#tableFor(address)?.add(address, number, expiry, isDead) === true;
        if (!add()) refused.push(add);
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
      for (const address of addresses) this.#tableFor(address)?.prune(address, (found) => found === number);
    }
  }

  /**
   * Copies the grants of another grant table of a family. Both tables must use the same pattern numbers. No
   * process may write to the other table any more. A table without a header was never used: it has no grants,
   * and perhaps another layout.
   */
  learnFrom(words: Uint32Array, family: Family): void {
    if (words[HEADER.homes] === 0) return;
    const isDead = this.#isDeadAt(0);
    const capacity = capacityOf(words.length / LINE.words, family);
    const other = GrantTable.recover(words, capacity, new Uint32Array(0), isDead, undefined, family);
    for (const { address, pattern, expiry } of other.entries()) {
      if (this.#tableFor(address)?.add(address, pattern, expiry, isDead) !== true) this.#refused++;
    }
  }

  /** Returns the texts of the hostname patterns that have an unexpired grant for an address. */
  patternsOf(address: Address, nowNs: bigint): readonly string[] {
    const now = expiryOf(nowNs);
    const granted = this.#tableFor(address)?.grantsOf(address) ?? [];
    return granted.flatMap(([pattern, expiry]) => {
      const text = expiry > now && this.#patterns.isLive(pattern) ? this.#patterns.textOf(pattern) : undefined;
      return text === undefined ? [] : [text];
    });
  }

  /**
   * Returns the unexpired grants, grouped by family and hostname pattern. Leaves out a pattern of the adopted
   * program (which an earlier process put in force) whose text this process does not know yet.
   */
  learned(nowNs: bigint): readonly Learned[] {
    return [...this.#tables].flatMap(([family, { table }]) => this.#learnedIn(family, table, expiryOf(nowNs)));
  }

  #learnedIn(family: Family, table: GrantTable, now: number): readonly Learned[] {
    const found = new Map<number, { addresses: Address[]; expiries: bigint[] }>();
    for (const { address, pattern, expiry } of table.entries()) {
      if (expiry <= now || !this.#patterns.isLive(pattern)) continue;
      const columns = found.get(pattern) ?? { addresses: [], expiries: [] };
      found.set(pattern, columns);
      columns.addresses.push(address);
      columns.expiries.push(timeOf(expiry));
    }
    return [...found].flatMap(([number, { addresses, expiries }]) => {
      const pattern = this.#patterns.textOf(number);
      if (pattern === undefined) return [];
      const words = new Uint32Array(addresses.length * ADDRESS_WORDS[family]);
      for (const [at, address] of addresses.entries()) putAddress(words, at * ADDRESS_WORDS[family], address);
      return [{ pattern, family, addresses: words, expiresAtNs: BigUint64Array.from(expiries) }];
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
   * call walks through a part of each table, or a whole table if it is more than three quarters full. Calls
   * `yieldToRequests` during long work, and that function may add grants.
   */
  sweep(nowNs: bigint, yieldToRequests: () => void = () => {}): void {
    this.#clear(yieldToRequests);
    for (const table of this.#all) {
      const { count, capacity, lines } = table;
      const kept = count * 2 < capacity ? KEPT_NS : 0n;
      const isDead = this.#isDeadAt(nowNs > kept ? expiryOf(nowNs - kept) : 0);
      sweepLines(table, count * 4 > capacity * 3 ? lines : LINES_OF_A_SWEEP, isDead, yieldToRequests);
    }
  }

  afterGrace(): void {
    for (const table of this.#all) table.afterGrace();
    this.#patterns.afterGrace();
  }

  /**
   * Removes the grants of retired hostname patterns, which no policy uses any more, from the whole tables.
   */
  #clear(yieldToRequests?: () => void): void {
    if (!this.#patterns.hasRetired) return;
    for (const table of this.#all) sweepLines(table, table.lines, this.#isDeadAt(0), yieldToRequests);
    this.#patterns.cleared();
  }

  get #all(): readonly GrantTable[] {
    return [...this.#tables.values()].map(({ table }) => table);
  }

  #tableFor(address: Address): GrantTable | undefined {
    return this.#tables.get(familyOf(address))?.table;
  }

  #noteShared(): void {
    for (const { ledger } of this.#tables.values()) ledger.isShared = this.#patterns.count > 1;
  }

  #isDeadAt(expiry: number): IsDead {
    return (pattern, until) => until <= expiry || !this.#patterns.isLive(pattern);
  }
}

function sweepLines(table: GrantTable, lines: number, isDead: IsDead, yieldToRequests: () => void = () => {}): void {
  for (let left = lines; left > 0; left -= LINES_AT_ONCE) {
    table.sweep(Math.min(left, LINES_AT_ONCE), isDead);
    yieldToRequests();
  }
}
