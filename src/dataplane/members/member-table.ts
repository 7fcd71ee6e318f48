import { AddressMap } from '#addresses/address-map.js';
import { memoryAddressAt, putAddress } from '#addresses/memory-words.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import { homeOf, writeHeader } from '#dataplane/grants/address-hash.js';
import { HEADER } from '#dataplane/grants/grant-layout.js';
import { SharedMemory } from '#dataplane/grants/memory.js';
import {
  CHANGES,
  INCOMPLETE,
  MEMBER_LAYOUTS,
  MEMBER_LINE,
  type MemberLayout,
  memberHomes,
  memberLines,
} from './member-layout.js';

/**
 * The number of resting places (`MemberTable`) above which the next new address waits for a grace period.
 * With more of them, new addresses are stored further away from their home lines.
 */
const MANY_RESTING = 1_024;

/**
 * The map `members` of one family: addresses with an owner (Kubernetes object), each with the map index of
 * its set of selectors in `MemberSets`. One store changes the set of a member, so that a BPF program reads
 * either the old set or the new one.
 *
 * An address is stored while its set is 0. If the BPF programs read an address and its set by two loads, the
 * place of a removed address *rests*: it keeps the address until a grace period has passed. Otherwise a
 * packet could read the former address with the set of the next one.
 */
export class MemberTable {
  readonly #memory: SharedMemory;
  /**
   * Addresses without a free place in the table. The outer key is the cache line of the address's hash; the
   * inner map has, for each address, the map index of its set of selectors.
   */
  readonly #refused = new Map<number, AddressMap<number>>();
  #refusedCount = 0;
  /** The cache lines of the table in which an entry became free since the last `retryRefused`. */
  readonly #freed = new Set<number>();
  readonly #resting: number[] = [];
  readonly #layout: MemberLayout;
  readonly #addressWords: number;
  readonly #lines: number;
  /** The words of the address that the table searches. */
  readonly #wanted: Uint32Array;
  #count = 0;

  /**
   * Takes over the members that an earlier process stored. Counts the addresses outside of their home line
   * again (`spilled`), because that process may have ended between two stores. The addresses that the earlier
   * process refused are not known, so the cache lines keep their counters `refused` until `complete`.
   * `random` has the random words for the hash factors of a new table (`MemberLayout.randomWords`).
   */
  constructor(
    readonly family: Family,
    words: Uint32Array,
    random: Uint32Array,
    private readonly awaitGracePeriod: () => void,
  ) {
    this.#memory = new SharedMemory(words);
    this.#layout = MEMBER_LAYOUTS[family];
    this.#addressWords = ADDRESS_WORDS[family];
    this.#lines = memberLines(family);
    this.#wanted = new Uint32Array(this.#addressWords);
    if (this.#memory.word(HEADER.homes) === 0) {
      this.#memory.storeWord(INCOMPLETE, 1);
      writeHeader(words, memberHomes(family), random.subarray(0, this.#layout.randomWords));
      return;
    }
    const spilled = new Uint32Array(this.#lines);
    for (let place = this.#layout.places; place < this.#lines * this.#layout.places; place++) {
      if (this.#isFree(place)) continue;
      if (this.#setOf(place) === 0) {
        this.#resting.push(place);
        continue;
      }
      this.#count += 1;
      const home = homeOf(words, this.#addressOf(place));
      for (let line = home; line < this.#lineOf(place); line++) spilled[line] = (spilled[line] ?? 0) + 1;
    }
    for (let line = 1; line < this.#lines; line++) {
      const at = line * MEMBER_LINE.words + this.#layout.line.spilled;
      if (this.#memory.word(at) !== spilled[line]) this.#memory.storeWord(at, spilled[line] ?? 0);
    }
  }

  /**
   * Increments the count of changes. Must be called after a change is stored, and before the flows of its
   * addresses are searched.
   */
  countChange(): void {
    this.#memory.storeWord(CHANGES, (this.#memory.word(CHANGES) + 2) & 0xffff);
  }

  get count(): number {
    return this.#count;
  }

  /** Number of addresses without a free place in the table. The datapath denies their traffic. */
  get refused(): number {
    return this.#refusedCount;
  }

  /**
   * Returns the map index of the set of selectors of an address, also if the table has no room for the
   * address; 0 if the address has no owner (Kubernetes object).
   */
  mapIndexAt(address: Address): number {
    const place = this.#find(address);
    return place === undefined ? (this.#refusedAt(address)?.get(address) ?? 0) : this.#setOf(place);
  }

  /** The addresses for which the table has no room; `count` does not include them. */
  *refusedAddresses(): Generator<Address> {
    for (const refused of this.#refused.values()) yield* refused.keys();
  }

  /** The addresses and the map indexes of their sets, also addresses for which the table has no room. */
  *members(): Generator<readonly [address: Address, mapIndex: number]> {
    for (let place = this.#layout.places; place < this.#lines * this.#layout.places; place++) {
      const set = this.#setOf(place);
      if (set !== 0) yield [this.#addressOf(place), set];
    }
    for (const refused of this.#refused.values()) yield* refused;
  }

  /**
   * Sets the map index of the set of an address; 0 removes the address. Returns false if the table has no
   * room for the address; it is then deny-only (gets no allow rule of a group with selectors).
   */
  set(address: Address, mapIndex: number): boolean {
    const place = this.#find(address);
    if (mapIndex === 0) {
      this.#forget(address);
      if (place !== undefined) this.#remove(address, place);
      return true;
    }
    if (place !== undefined) {
      this.#memory.storeWord(this.#setWord(place), mapIndex);
      return true;
    }
    if (this.#insert(address, mapIndex)) {
      this.#forget(address);
      return true;
    }
    this.#refuse(address, mapIndex);
    return false;
  }

  /**
   * Stores the refused addresses for which there is room now, and returns them. Only lines in which a place
   * became free are searched, so the cost does not depend on the number of refused addresses.
   */
  retryRefused(): readonly Address[] {
    const stored: Address[] = [];
    if (this.#refusedCount > 0 && this.#freed.size > 0) {
      this.#endRest();
      for (const line of this.#freed) this.#fillLine(line, stored);
    }
    this.#freed.clear();
    return stored;
  }

  /**
   * Must be called when all members that exist are set. From then on, an address that is not in the table has
   * no owner (Kubernetes object). Before the call, such an address is deny-only (no allow rules of groups
   * with selectors apply) if the table is new, or if its cache line counts addresses that an earlier process
   * refused.
   */
  complete(): void {
    const refused = new Uint32Array(this.#lines);
    for (const [home, addresses] of this.#refused) refused[home] = addresses.size;
    for (let line = 1; line < this.#lines; line++) {
      const at = line * MEMBER_LINE.words + this.#layout.line.refused;
      if (this.#memory.word(at) !== refused[line]) this.#memory.storeWord(at, refused[line] ?? 0);
    }
    this.#memory.storeWord(INCOMPLETE, 0);
  }

  #insert(address: Address, mapIndex: number): boolean {
    if (this.#resting.length >= MANY_RESTING) this.#endRest();
    const home = homeOf(this.#memory.words, address);
    const place = this.#freePlace(home) ?? (this.#endRest() ? this.#freePlace(home) : undefined);
    if (place === undefined) return false;
    // A search for the address ends at a line whose counter `spilled` is 0, so count the address before it is
    // stored.
    for (let line = home; line < this.#lineOf(place); line++) this.#addTo(line, this.#layout.line.spilled, 1);
    this.#storeAddress(place, address);
    this.#memory.storeWord(this.#setWord(place), mapIndex);
    this.#count += 1;
    return true;
  }

  /** Returns the first free place of the cache lines that a search from this home line reads. */
  #freePlace(home: number): number | undefined {
    const { places, probes } = this.#layout;
    for (let place = home * places; place < (home + probes) * places; place++) if (this.#isFree(place)) return place;
    return undefined;
  }

  #remove(address: Address, place: number): void {
    this.#memory.storeWord(this.#setWord(place), 0);
    if (this.#layout.hasOneLoad) this.#storeAddress(place, null);
    else this.#resting.push(place);
    this.#count -= 1;
    this.#freed.add(this.#lineOf(place));
    for (let line = homeOf(this.#memory.words, address); line < this.#lineOf(place); line++) {
      this.#addTo(line, this.#layout.line.spilled, -1);
    }
  }

  /** Frees the resting places after a grace period. Returns whether there are any. */
  #endRest(): boolean {
    if (this.#resting.length === 0) return false;
    this.awaitGracePeriod();
    for (const place of this.#resting.splice(0)) this.#storeAddress(place, null);
    return true;
  }

  /** Stores addresses that were refused earlier for lack of space, while this cache line has free entries. */
  #fillLine(line: number, stored: Address[]): void {
    for (let home = Math.max(1, line - this.#layout.probes + 1); home <= line; home++) {
      for (const [address, mapIndex] of this.#refused.get(home) ?? []) {
        if (!this.#hasRoom(line)) return;
        if (this.set(address, mapIndex)) stored.push(address);
      }
    }
  }

  #hasRoom(line: number): boolean {
    const { places } = this.#layout;
    for (let place = line * places; place < (line + 1) * places; place++) if (this.#isFree(place)) return true;
    return false;
  }

  #refusedAt(address: Address): AddressMap<number> | undefined {
    if (this.#refusedCount === 0) return undefined;
    return this.#refused.get(homeOf(this.#memory.words, address));
  }

  #refuse(address: Address, mapIndex: number): void {
    const home = homeOf(this.#memory.words, address);
    const refused = this.#refused.get(home) ?? new AddressMap<number>();
    this.#refused.set(home, refused);
    if (!refused.has(address)) {
      this.#addTo(home, this.#layout.line.refused, 1);
      this.#refusedCount += 1;
    }
    refused.set(address, mapIndex);
  }

  #forget(address: Address): void {
    const refused = this.#refusedAt(address);
    if (refused?.delete(address) !== true) return;
    const home = homeOf(this.#memory.words, address);
    if (refused.size === 0) this.#refused.delete(home);
    this.#addTo(home, this.#layout.line.refused, -1);
    this.#refusedCount -= 1;
  }

  #addTo(line: number, field: number, by: number): void {
    const at = line * MEMBER_LINE.words + field;
    this.#memory.storeWord(at, this.#memory.word(at) + by);
  }

  /** Returns the place of an address in the table. The places of cache line `n` begin with `n * places`. */
  #find(address: Address): number | undefined {
    const { places, probes, line } = this.#layout;
    const home = homeOf(this.#memory.words, address);
    putAddress(this.#wanted, 0, address);
    for (let at = home; at < home + probes; at++) {
      for (let place = at * places; place < (at + 1) * places; place++) {
        if (this.#setOf(place) !== 0 && this.#isWanted(place)) return place;
      }
      if (this.#memory.word(at * MEMBER_LINE.words + line.spilled) === 0) return undefined;
    }
    return undefined;
  }

  #isWanted(place: number): boolean {
    const at = this.#addressWord(place);
    for (let word = 0; word < this.#addressWords; word++)
      if (this.#memory.word(at + word) !== this.#wanted[word]) return false;
    return true;
  }

  /** Whether a place has neither an address nor a set. No member has the unspecified address. */
  #isFree(place: number): boolean {
    if (this.#setOf(place) !== 0) return false;
    const at = this.#addressWord(place);
    for (let word = 0; word < this.#addressWords; word++) if (this.#memory.word(at + word) !== 0) return false;
    return true;
  }

  #addressOf(place: number): Address {
    return memoryAddressAt(this.#memory.words, this.#addressWord(place), this.family);
  }

  #setOf(place: number): number {
    return this.#memory.word(this.#setWord(place));
  }

  /** Stores an address in a place whose set is 0; null clears the place. */
  #storeAddress(place: number, address: Address | null): void {
    if (address === null) this.#wanted.fill(0);
    else putAddress(this.#wanted, 0, address);
    const at = this.#addressWord(place);
    for (const [word, value] of this.#wanted.entries()) this.#memory.storeWord(at + word, value);
  }

  #addressWord(place: number): number {
    const { places, line } = this.#layout;
    return this.#lineOf(place) * MEMBER_LINE.words + line.addresses + (place % places) * line.addressStep;
  }

  #setWord(place: number): number {
    const { places, line } = this.#layout;
    return this.#lineOf(place) * MEMBER_LINE.words + line.sets + (place % places) * line.setStep;
  }

  #lineOf(place: number): number {
    return Math.floor(place / this.#layout.places);
  }
}
