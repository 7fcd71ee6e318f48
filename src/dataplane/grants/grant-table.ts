import { memoryAddressAt, putAddress } from '#addresses/memory-words.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import { homeOf, writeHeader } from './address-hash.js';
import { GRANT_LAYOUTS, type GrantLayout, HEADER, LINE, regionsFor, SET } from './grant-layout.js';
import { Ledger } from './grant-ledger.js';
import { GrantSets, type IsDead } from './grant-sets.js';
import { SharedMemory } from './memory.js';

/**
 * Fraction of the table's capacity. While several hostname patterns are in use, the last free places of the
 * table, up to this fraction, are reserved for patterns with at most this many addresses.
 */
const SHARE = 1 / 16;

/**
 * A hash table that maps the addresses of one family to grants, in memory that the BPF programs read at the
 * same time (`bpf/classify/grants.h`). A grant is stored after its address and removed before it, because an
 * IPv6 address is not stored at once. The place of a removed address keeps the address until `afterGrace`.
 */
export class GrantTable {
  readonly #memory: SharedMemory;
  readonly #header: Uint32Array;
  readonly #sets: GrantSets;
  readonly #ledger: Ledger;
  /**
   * Indexes of removed grants, in 64-bit words from the start of the table. The places of these grants are
   * reused only after `afterGrace`.
   */
  readonly #resting: number[] = [];
  readonly #endOfTable: number;
  readonly #layout: GrantLayout;
  readonly #addressWords: number;
  /** The words of the address that the table searches. */
  readonly #wanted: Uint32Array;
  #cursor = 1;

  /**
   * Use `recover` instead. `words` must be a table that `recover` has repaired, and `ledger` the ledger that
   * it filled.
   */
  constructor(
    words: Uint32Array,
    readonly capacity: number,
    ledger: Ledger,
    private readonly family: Family,
  ) {
    this.#memory = new SharedMemory(words);
    this.#header = words.subarray(0, LINE.words);
    this.#endOfTable = regionsFor(capacity, family).sets;
    this.#layout = GRANT_LAYOUTS[family];
    this.#addressWords = ADDRESS_WORDS[family];
    this.#wanted = new Uint32Array(this.#addressWords);
    this.#ledger = ledger;
    this.#sets = new GrantSets(this.#memory, ledger);
  }

  /**
   * Repairs a table that an earlier process used, or initializes a new table. Removes the grants for which
   * `isDead` returns true. `random` has the random words for the hash factors of a new table
   * (`GrantLayout.randomWords`). `ledger` must be new; this function fills it. If an earlier process removed
   * grants, a grace period must have passed since then.
   */
  static recover(
    words: Uint32Array,
    capacity: number,
    random: Uint32Array,
    isDead: IsDead,
    ledger = new Ledger(capacity),
    family: Family = 'ipv4',
  ): GrantTable {
    const table = new GrantTable(words, capacity, ledger, family);
    const { homes, sets, end } = regionsFor(capacity, family);
    if (table.#header[HEADER.homes] === 0) {
      writeHeader(table.#header, homes, random.subarray(0, table.#layout.randomWords));
    }
    table.#recover(sets, end, isDead);
    return table;
  }

  /** The number of addresses in the table. */
  get count(): number {
    return this.#ledger.count;
  }

  /**
   * The number of address places and of cache lines of sets that cannot be reused before the next call of
   * `afterGrace`.
   */
  get resting(): number {
    return this.#resting.length + this.#sets.resting;
  }

  /**
   * Adds a grant of an address to a hostname pattern, or extends the expiry of an existing grant. Returns
   * false, and changes nothing, if there is no room: in the table, in the cache lines where a search for the
   * address looks, in the set of grants of the address, or in the share of the table that one pattern may
   * use.
   */
  add(address: Address, pattern: number, expiry: number, isDead: IsDead): boolean {
    if (isUnspecified(address)) return false;
    const found = this.#find(address);
    if (found < 0) return this.#claim(address, pattern, expiry);
    const low = this.#memory.low(found);
    const high = this.#memory.high(found);
    const latest = Math.max(high, expiry);
    if (low === pattern || (low < SET && isDead(low, high))) {
      if (low !== pattern || high < expiry) this.#memory.storeLong(found, pattern, expiry);
      if (low !== pattern) {
        this.#ledger.removeHolding(low);
        this.#ledger.addHolding(pattern);
      }
      return true;
    }
    if (low < SET) {
      const made = this.#sets.make([low, high], [pattern, expiry]);
      if (made === 0) return false;
      this.#memory.storeLong(found, SET + made, latest);
      this.#ledger.addHolding(pattern);
      return true;
    }
    if (!this.#sets.add(low - SET, pattern, expiry, isDead)) return false;
    if (latest > high) this.#memory.storeLong(found, low, latest);
    return true;
  }

  grantsOf(address: Address): readonly (readonly [pattern: number, expiry: number])[] {
    const found = isUnspecified(address) ? -1 : this.#find(address);
    if (found < 0) return [];
    const low = this.#memory.low(found);
    return low < SET ? [[low, this.#memory.high(found)]] : [...this.#sets.grants(low - SET)];
  }

  prune(address: Address, isDead: IsDead): void {
    const found = isUnspecified(address) ? -1 : this.#find(address);
    if (found >= 0) this.#pruneAt(found, isDead);
  }

  /** The number of cache lines that contain places for addresses. */
  get lines(): number {
    return this.#endOfTable - 1;
  }

  /**
   * Removes the grants for which `isDead` returns true, in the next `lines` cache lines. The next call
   * continues after these lines, and after the last line of the table it continues at the first.
   */
  sweep(lines: number, isDead: IsDead): void {
    for (let count = 0; count < Math.min(lines, this.lines); count++) {
      for (let place = 0; place < this.#layout.places; place++) {
        const long = this.#longOf(this.#cursor, place);
        if (!this.#memory.isZero(long)) this.#pruneAt(long, isDead);
      }
      this.#cursor = this.#cursor + 1 < this.#endOfTable ? this.#cursor + 1 : 1;
    }
  }

  /**
   * Makes the places of removed addresses available for new addresses. The caller must have waited for an
   * RCU grace period after the addresses were removed.
   */
  afterGrace(): void {
    for (const long of this.#resting) this.#storeAddress(this.#wordOfLong(long), null);
    this.#resting.length = 0;
    this.#sets.afterGrace();
  }

  *entries(): Generator<{ readonly address: Address; readonly pattern: number; readonly expiry: number }> {
    for (let line = 1; line < this.#endOfTable; line++) {
      for (let place = 0; place < this.#layout.places; place++) {
        const long = this.#longOf(line, place);
        if (this.#memory.isZero(long)) continue;
        const address = this.#addressAt(line, place);
        const low = this.#memory.low(long);
        if (low < SET) yield { address, pattern: low, expiry: this.#memory.high(long) };
        else for (const [pattern, expiry] of this.#sets.grants(low - SET)) yield { address, pattern, expiry };
      }
    }
  }

  /**
   * Returns the index of the grant of an address, in 64-bit words from the start of the table; -1 if the
   * table does not contain the address.
   */
  #find(address: Address): number {
    const home = homeOf(this.#header, address);
    putAddress(this.#wanted, 0, address);
    for (let line = home; line < home + this.#layout.probes; line++) {
      for (let place = 0; place < this.#layout.places; place++) {
        const long = this.#longOf(line, place);
        if (this.#isWanted(line, place) && !this.#memory.isZero(long)) return long;
      }
      if (this.#memory.word(this.#spilledOf(line)) === 0) return -1;
    }
    return -1;
  }

  #isWanted(line: number, place: number): boolean {
    const at = this.#wordOf(line, place);
    for (let word = 0; word < this.#addressWords; word++)
      if (this.#memory.word(at + word) !== this.#wanted[word]) return false;
    return true;
  }

  #claim(address: Address, pattern: number, expiry: number): boolean {
    if (this.#ledger.count >= this.capacity || this.#isOverShare(pattern)) return false;
    const home = homeOf(this.#header, address);
    for (let line = home; line < home + this.#layout.probes; line++) {
      for (let place = 0; place < this.#layout.places; place++) {
        const long = this.#longOf(line, place);
        if (!this.#memory.isZero(long) || !isUnspecified(this.#addressAt(line, place))) continue;
        // First increment the counters of the lines that a search for this address passes, then store the
        // address, then the grant. In another order, a BPF program could miss the address, or find its grant
        // by a part of the address.
        this.#spill(home, line, 1);
        this.#storeAddress(this.#wordOf(line, place), address);
        this.#memory.storeLong(long, pattern, expiry);
        this.#ledger.addAddress();
        this.#ledger.addHolding(pattern);
        return true;
      }
    }
    return false;
  }

  #isOverShare(pattern: number): boolean {
    const share = this.capacity * SHARE;
    return (
      this.#ledger.isShared && this.#ledger.count >= this.capacity - share && this.#ledger.holdingsOf(pattern) > share
    );
  }

  #pruneAt(long: number, isDead: IsDead): void {
    const low = this.#memory.low(long);
    const empty = low < SET ? isDead(low, this.#memory.high(long)) : this.#sets.prune(low - SET, isDead);
    if (!empty) return;
    if (low < SET) this.#ledger.removeHolding(low);
    const line = Math.floor(long / LINE.longs);
    const address = memoryAddressAt(this.#memory.words, this.#wordOfLong(long), this.family);
    this.#memory.storeLong(long, 0, 0);
    this.#spill(homeOf(this.#header, address), line, -1);
    if (low >= SET) this.#sets.drop(low - SET);
    this.#resting.push(long);
    this.#ledger.removeAddress();
  }

  /**
   * Adds `by` to the counter `spilled` of the cache lines from the home line of an address up to `line`,
   * which is excluded. A search for the address passes these lines.
   */
  #spill(home: number, line: number, by: 1 | -1): void {
    for (let passed = home; passed < line; passed++) {
      const at = this.#spilledOf(passed);
      this.#memory.storeWord(at, this.#memory.word(at) + by);
    }
  }

  /**
   * Repairs a table that a killed process may have left in the middle of a change. Clears addresses without a
   * grant, and grants without an address, which an earlier build leaves. Computes the counters `spilled` of
   * the lines again, and counts addresses and free lines. Then removes the grants for which `isDead` returns
   * true.
   */
  #recover(sets: number, end: number, isDead: IsDead): void {
    const used = new Uint8Array(end - sets);
    const spilled = new Uint32Array(this.#endOfTable);
    for (let line = 1; line < this.#endOfTable; line++) {
      for (let place = 0; place < this.#layout.places; place++) {
        const long = this.#longOf(line, place);
        const address = this.#addressAt(line, place);
        if (isUnspecified(address) || this.#memory.isZero(long)) {
          if (!this.#memory.isZero(long)) this.#memory.storeLong(long, 0, 0);
          if (!isUnspecified(address)) this.#storeAddress(this.#wordOf(line, place), null);
          continue;
        }
        this.#ledger.addAddress();
        for (let passed = homeOf(this.#header, address); passed < line; passed++) {
          spilled[passed] = (spilled[passed] ?? 0) + 1;
        }
        const low = this.#memory.low(long);
        if (low < SET) this.#ledger.addHolding(low);
        else {
          for (const set of this.#sets.lines(low - SET)) used[set - sets] = 1;
          for (const [pattern] of this.#sets.grants(low - SET)) this.#ledger.addHolding(pattern);
        }
      }
    }
    for (const [line, count] of spilled.entries()) {
      const at = this.#spilledOf(line);
      if (line > 0 && this.#memory.word(at) !== count) this.#memory.storeWord(at, count);
    }
    for (let line = end - 1; line >= sets; line--) if (used[line - sets] === 0) this.#ledger.freeLine(line);
    this.sweep(this.lines, isDead);
  }

  #addressAt(line: number, place: number): Address {
    return memoryAddressAt(this.#memory.words, this.#wordOf(line, place), this.family);
  }

  /** Stores an address at index `at`, in 32-bit words; null clears it. Its grant must be 0. */
  #storeAddress(at: number, address: Address | null): void {
    if (address === null) this.#wanted.fill(0);
    else putAddress(this.#wanted, 0, address);
    for (const [word, value] of this.#wanted.entries()) this.#memory.storeWord(at + word, value);
  }

  /** Returns the index of a grant, in 64-bit words. */
  #longOf(line: number, place: number): number {
    return line * LINE.longs + this.#layout.line.grants + place;
  }

  /** Returns the index of an address, in 32-bit words. */
  #wordOf(line: number, place: number): number {
    return line * LINE.words + this.#layout.line.addresses + place * this.#addressWords;
  }

  /** Returns the index of the address whose grant has the index `long`. */
  #wordOfLong(long: number): number {
    return this.#wordOf(Math.floor(long / LINE.longs), (long % LINE.longs) - this.#layout.line.grants);
  }

  #spilledOf(line: number): number {
    return line * LINE.words + this.#layout.line.spilled;
  }
}

function isUnspecified(address: Address): boolean {
  return address === 0 || address === 0n;
}
