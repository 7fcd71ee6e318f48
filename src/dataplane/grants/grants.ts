import { CapacityExceeded, type Grant, type Learned } from '#contracts/datapath.js';
import { capacityOf, expiryOf, LINE, timeOf } from './grant-layout.js';
import { Ledger } from './grant-ledger.js';
import type { IsDead } from './grant-sets.js';
import { GrantTable } from './grant-table.js';
import { PatternTable, type Slot } from './pattern-table.js';

/** Lines that one sweep reads while there is room. */
const LINES_OF_A_SWEEP = 8_192;
/** Lines that are swept between two calls of `breathe`; they take some hundred microseconds. */
const LINES_AT_ONCE = 2_048;
/** A grace period is due when more than one sixteenth of the capacity waits for it. */
const RESTING_PART = 16;
/**
 * An expired grant is kept this long for the flows that it admitted, if there is room: the longest time that
 * D12 allows.
 */
const KEPT_NS = 86_400_000_000_000n;

/** Learned addresses (D12), in memory shared with the kernel. Times are on the monotonic clock. */
export class Grants {
  readonly #patterns: PatternTable;
  readonly #table: GrantTable;
  readonly #ledger: Ledger;
  #refused = 0;

  /**
   * `inForce` is the slot of a program that was found in force. No reader may still use grants that were
   * removed before this call.
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

  /** Addresses that were refused because there was no room. */
  get refused(): number {
    return this.#refused;
  }

  /** Whether so much was removed that a grace period is worth the wait. */
  get isGraceDue(): boolean {
    return this.#table.resting * RESTING_PART > this.#table.capacity;
  }

  /**
   * Returns the number of addresses refused. Skips a pattern that no program has: it was removed meanwhile.
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
    // Second try: an address may have entered the table by another pattern meanwhile, and then a pattern over
    // its share may use it too.
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
   * Copies the grants of another table that uses the same numbers of patterns. No writer may use that table
   * any more.
   */
  learnFrom(words: Uint32Array): void {
    const isDead = this.#isDeadAt(0);
    const other = GrantTable.recover(words, capacityOf(words.length / LINE.words), new Uint32Array(4), isDead);
    for (const { address, pattern, expiry } of other.entries()) {
      if (!this.#table.add(address, pattern, expiry, isDead)) this.#refused++;
    }
  }

  /** The texts of the patterns that an address is granted to now. */
  patternsOf(address: number, nowNs: bigint): readonly string[] {
    const now = expiryOf(nowNs);
    return this.#table.grantsOf(address).flatMap(([pattern, expiry]) => {
      const text = expiry > now && this.#patterns.isLive(pattern) ? this.#patterns.textOf(pattern) : undefined;
      return text === undefined ? [] : [text];
    });
  }

  /** The present grants by pattern. Leaves out patterns of an adopted program whose text is not known yet. */
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
   * Makes room for the patterns of a program; call it before `fill`. Calls `awaitGracePeriod` if the room
   * needs one. Throws `CapacityExceeded`.
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
   * Writes the pattern names of a program into a slot that no reader uses, after `makeRoom`. Calls `breathe`
   * between parts of the work; it may add grants.
   */
  fill(slot: Slot, patterns: readonly string[], breathe: () => void = () => {}): void {
    this.#patterns.fill(slot, patterns, breathe);
    this.#noteShared();
  }

  /** Call after the program in this slot was put in force. */
  activated(slot: Slot): void {
    this.#patterns.activated(slot);
    this.#noteShared();
  }

  /**
   * Removes dead grants: a part of the table each time, and all of it when room is short. Calls `breathe`
   * during long work; it may add grants.
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
