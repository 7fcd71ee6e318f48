import { homeOf, writeHeader } from '#dataplane/grants/address-hash.js';
import { HEADER } from '#dataplane/grants/grant-layout.js';
import { SharedMemory } from '#dataplane/grants/memory.js';
import {
  CHANGES,
  INCOMPLETE,
  MEMBER_FIELDS,
  MEMBER_HOMES,
  MEMBER_LINE,
  MEMBER_LINES,
  MEMBER_PLACES,
  MEMBER_PROBES,
} from './member-layout.js';

/**
 * The map `members`: addresses with an owner (Kubernetes object), each with the map index of its set of
 * selectors in `MemberSets`. One store changes a member, so that a BPF program reads either the old set or
 * the new one.
 */
export class MemberTable {
  readonly #memory: SharedMemory;
  /**
   * Addresses without a free place in the table. The outer key is the cache line of the address's hash; the
   * inner map has, for each address, the map index of its set of selectors.
   */
  readonly #refused = new Map<number, Map<number, number>>();
  #refusedCount = 0;
  /** The cache lines of the table in which an entry became free since the last `retryRefused`. */
  readonly #freed = new Set<number>();
  #count = 0;

  /**
   * Takes over the members that an earlier process stored. Counts the addresses outside of their home line
   * again (`spilled`), because that process may have ended between two stores. The addresses that the earlier
   * process refused are not known, so the cache lines keep their counters `refused` until `complete`.
   */
  constructor(words: Uint32Array, random: Uint32Array) {
    this.#memory = new SharedMemory(words);
    if (this.#memory.word(HEADER.homes) === 0) {
      this.#memory.storeWord(INCOMPLETE, 1);
      writeHeader(words, MEMBER_HOMES, random);
      return;
    }
    const spilled = new Uint32Array(MEMBER_LINES);
    for (const { address, place } of this.#stored()) {
      this.#count += 1;
      for (let line = homeOf(words, address); line < lineOf(place); line++) spilled[line] = (spilled[line] ?? 0) + 1;
    }
    for (let line = 1; line < MEMBER_LINES; line++) {
      const at = line * MEMBER_LINE.words + MEMBER_FIELDS.spilled;
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
  mapIndexAt(address: number): number {
    const place = this.#find(address);
    return place === undefined ? (this.#refusedAt(address)?.get(address) ?? 0) : this.#memory.high(place);
  }

  /** The addresses for which the table has no room; `count` does not include them. */
  *refusedAddresses(): Generator<number> {
    for (const refused of this.#refused.values()) yield* refused.keys();
  }

  /** The addresses and the map indexes of their sets, also addresses for which the table has no room. */
  *members(): Generator<readonly [address: number, mapIndex: number]> {
    for (const { address, place } of this.#stored()) yield [address, this.#memory.high(place)];
    for (const refused of this.#refused.values()) yield* refused;
  }

  /**
   * Sets the map index of the set of an address; 0 removes the address. Returns false if the table has no
   * room for the address; it is then deny-only (gets no allow rule of a group with selectors).
   */
  set(address: number, mapIndex: number): boolean {
    const place = this.#find(address);
    if (mapIndex === 0) {
      this.#forget(address);
      if (place !== undefined) this.#remove(address, place);
      return true;
    }
    if (place !== undefined) {
      this.#memory.storeLong(place, address, mapIndex);
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
  retryRefused(): readonly number[] {
    const stored: number[] = [];
    if (this.#refusedCount > 0) for (const line of this.#freed) this.#fillLine(line, stored);
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
    const refused = new Uint32Array(MEMBER_LINES);
    for (const [home, addresses] of this.#refused) refused[home] = addresses.size;
    for (let line = 1; line < MEMBER_LINES; line++) {
      const at = line * MEMBER_LINE.words + MEMBER_FIELDS.refused;
      if (this.#memory.word(at) !== refused[line]) this.#memory.storeWord(at, refused[line] ?? 0);
    }
    this.#memory.storeWord(INCOMPLETE, 0);
  }

  #insert(address: number, mapIndex: number): boolean {
    const home = homeOf(this.#memory.words, address);
    for (let probe = 0; probe < MEMBER_PROBES; probe++) {
      for (let at = 0; at < MEMBER_PLACES; at++) {
        const place = placeOf(home + probe, at);
        if (!this.#memory.isZero(place)) continue;
        // A search for the address ends at a line whose counter `spilled` is 0, so count the address before
        // it is stored.
        for (let line = home; line < home + probe; line++) this.#addTo(line, MEMBER_FIELDS.spilled, 1);
        this.#memory.storeLong(place, address, mapIndex);
        this.#count += 1;
        return true;
      }
    }
    return false;
  }

  #remove(address: number, place: number): void {
    this.#memory.storeLong(place, 0, 0);
    this.#count -= 1;
    this.#freed.add(lineOf(place));
    for (let line = homeOf(this.#memory.words, address); line < lineOf(place); line++) {
      this.#addTo(line, MEMBER_FIELDS.spilled, -1);
    }
  }

  /** Stores addresses that were refused earlier for lack of space, while this cache line has free entries. */
  #fillLine(line: number, stored: number[]): void {
    for (let home = Math.max(1, line - MEMBER_PROBES + 1); home <= line; home++) {
      for (const [address, mapIndex] of this.#refused.get(home) ?? []) {
        if (!this.#hasRoom(line)) return;
        if (this.set(address, mapIndex)) stored.push(address);
      }
    }
  }

  #hasRoom(line: number): boolean {
    for (let at = 0; at < MEMBER_PLACES; at++) if (this.#memory.isZero(placeOf(line, at))) return true;
    return false;
  }

  #refusedAt(address: number): Map<number, number> | undefined {
    if (this.#refusedCount === 0) return undefined;
    return this.#refused.get(homeOf(this.#memory.words, address));
  }

  #refuse(address: number, mapIndex: number): void {
    const home = homeOf(this.#memory.words, address);
    const refused = this.#refused.get(home) ?? new Map<number, number>();
    this.#refused.set(home, refused);
    if (!refused.has(address)) {
      this.#addTo(home, MEMBER_FIELDS.refused, 1);
      this.#refusedCount += 1;
    }
    refused.set(address, mapIndex);
  }

  #forget(address: number): void {
    const refused = this.#refusedAt(address);
    if (refused?.delete(address) !== true) return;
    const home = homeOf(this.#memory.words, address);
    if (refused.size === 0) this.#refused.delete(home);
    this.#addTo(home, MEMBER_FIELDS.refused, -1);
    this.#refusedCount -= 1;
  }

  #addTo(line: number, field: number, by: number): void {
    const at = line * MEMBER_LINE.words + field;
    this.#memory.storeWord(at, this.#memory.word(at) + by);
  }

  /** Returns the position of an address in the table, as the index of a 64-bit word. */
  #find(address: number): number | undefined {
    const home = homeOf(this.#memory.words, address);
    for (let probe = 0; probe < MEMBER_PROBES; probe++) {
      for (let at = 0; at < MEMBER_PLACES; at++) {
        const place = placeOf(home + probe, at);
        if (this.#memory.low(place) === address && this.#memory.high(place) !== 0) return place;
      }
      if (this.#memory.word((home + probe) * MEMBER_LINE.words + MEMBER_FIELDS.spilled) === 0) return undefined;
    }
    return undefined;
  }

  *#stored(): Generator<{ readonly address: number; readonly place: number }> {
    for (let line = 1; line < MEMBER_LINES; line++) {
      for (let at = 0; at < MEMBER_PLACES; at++) {
        const place = placeOf(line, at);
        if (this.#memory.high(place) !== 0) yield { address: this.#memory.low(place), place };
      }
    }
  }
}

function placeOf(line: number, at: number): number {
  return line * MEMBER_LINE.longs + MEMBER_FIELDS.members + at;
}

function lineOf(place: number): number {
  return Math.floor(place / MEMBER_LINE.longs);
}
