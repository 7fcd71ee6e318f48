import { CapacityExceeded, type Grant, type Learned } from '#contracts/datapath.js';
import { capacityOf, expiryOf, LINE, timeOf } from './grant-layout.js';
import { Ledger } from './grant-ledger.js';
import type { IsDead } from './grant-sets.js';
import { GrantTable } from './grant-table.js';
import { PatternTable, type Slot } from './pattern-table.js';

/** Lines of the table that one sweep looks at while there is room. */
const LINES_OF_A_SWEEP = 8_192;
/** Lines swept between two calls of `breathe`: some hundred microseconds. */
const LINES_AT_ONCE = 2_048;
/** A grace period is waited for when so great a part of the capacity rests. */
const RESTING_PART = 16;
/** How long an expired grant is kept for flows that it admitted, where there is room: as long as D12 lets one live. */
const KEPT_NS = 86_400_000_000_000n;

/** Learned addresses (D12), shared with the kernel. Times are of the monotonic clock. */
export class Grants {
  readonly #patterns: PatternTable;
  readonly #table: GrantTable;
  readonly #ledger: Ledger;
  #refused = 0;

  /** `inForce` is the slot of a program that was found in force. Nobody may read what was removed before this. */
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

  /** Addresses of patterns that were not learned because there was no room. */
  get refused(): number {
    return this.#refused;
  }

  /** Whether much was removed that could be used again after a grace period. */
  get isGraceDue(): boolean {
    return this.#table.resting * RESTING_PART > this.#table.capacity;
  }

  /** Answers how many addresses were not learned. A pattern that no program has is left out: it was removed meanwhile. */
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
    // A pattern that has its share gets an address all the same which another one brought into the table.
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

  /** Learns what another table says by the same numbers of patterns; nobody else may write that any more. */
  learnFrom(words: Uint32Array): void {
    const isDead = this.#isDeadAt(0);
    const other = GrantTable.recover(words, capacityOf(words.length / LINE.words), new Uint32Array(4), isDead);
    for (const { address, pattern, expiry } of other.entries()) {
      if (!this.#table.add(address, pattern, expiry, isDead)) this.#refused++;
    }
  }

  /** Texts of the patterns that an address is granted for now. */
  patternsOf(address: number, nowNs: bigint): readonly string[] {
    const now = expiryOf(nowNs);
    return this.#table.grantsOf(address).flatMap(([pattern, expiry]) => {
      const text = expiry > now && this.#patterns.isLive(pattern) ? this.#patterns.textOf(pattern) : undefined;
      return text === undefined ? [] : [text];
    });
  }

  /** What is granted now, by pattern; not that of a pattern found in force before a program said its text. */
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

  /** Makes room for the patterns of a program; `awaitGracePeriod` is called where that needs one. Throws before `fill`. */
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
   * Writes the names of a program into a slot that nobody reads, after `makeRoom` for them. `breathe` is called between
   * parts of the work: it may add grants.
   */
  fill(slot: Slot, patterns: readonly string[], breathe: () => void = () => {}): void {
    this.#patterns.fill(slot, patterns, breathe);
    this.#noteShared();
  }

  /** The program in this slot is in force now. */
  activated(slot: Slot): void {
    this.#patterns.activated(slot);
    this.#noteShared();
  }

  /**
   * Removes what is dead: some of it each time, round and round, and all of it where room is short. `breathe` is called in
   * the middle of what takes long: it may add grants.
   */
  sweep(nowNs: bigint, breathe: () => void = () => {}): void {
    this.#clear(breathe);
    const { entries, capacity } = this.addresses;
    const kept = entries * 2 < capacity ? KEPT_NS : 0n;
    const isDead = this.#isDeadAt(nowNs > kept ? expiryOf(nowNs - kept) : 0);
    this.#sweep(entries * 4 > capacity * 3 ? this.#table.lines : LINES_OF_A_SWEEP, isDead, breathe);
  }

  afterGrace(): void {
    this.#table.afterGrace();
    this.#patterns.afterGrace();
  }

  /** Removes the grants of retired patterns. */
  #clear(breathe?: () => void): void {
    if (!this.#patterns.hasRetired) return;
    this.#sweep(this.#table.lines, this.#isDeadAt(0), breathe);
    this.#patterns.cleared();
  }

  #sweep(lines: number, isDead: IsDead, breathe: () => void = () => {}): void {
    for (let left = lines; left > 0; left -= LINES_AT_ONCE) {
      this.#table.sweep(Math.min(left, LINES_AT_ONCE), isDead);
      breathe();
    }
  }

  #noteShared(): void {
    this.#ledger.isShared = this.#patterns.count > 1;
  }

  #isDeadAt(expiry: number): IsDead {
    return (pattern, until) => until <= expiry || !this.#patterns.isLive(pattern);
  }
}
