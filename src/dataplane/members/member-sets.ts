import { createHash } from 'node:crypto';
import type { SelectorSet } from '#contracts/membership.js';
import type { MemberIndex } from '#policy/model/member-index.js';
import { CLOSED_SET, MEMBER_SET, MEMBER_SETS } from './member-layout.js';

type Slot = 0 | 1;

/**
 * The map `member_sets`. Each set of selectors has a number in this map, which differs from the number of
 * `SelectorSet`: it stays the same in the next process, which finds it by the digest of the keys.
 */
export class MemberSets {
  readonly #words: Uint32Array;
  readonly #digests: Uint8Array;
  readonly #numbers = new Map<string, number>();
  /** The keys of the sets that this process knows, by number in the map. */
  readonly #sets = new Map<number, SelectorSet>();
  /** The numbers of the sets in `#sets`. */
  readonly #ofSets = new WeakMap<SelectorSet, number>();
  /** The number of addresses of each set. */
  readonly #uses = new Uint32Array(MEMBER_SETS);
  /** The number of sets without addresses. */
  #idle = 0;
  readonly #free: number[] = [];
  /** Numbers that no address has any more, which a BPF program may still have read. */
  #awaitingGracePeriod: number[] = [];
  /** The programs of the slots; undefined if an earlier process put the program of the slot in force. */
  readonly #programs: [MemberIndex | null | undefined, MemberIndex | null | undefined] = [undefined, undefined];

  constructor(words: Uint32Array) {
    this.#words = words;
    this.#digests = new Uint8Array(words.buffer, words.byteOffset, words.length * 4);
    for (let number = MEMBER_SETS - 1; number > 0; number--) {
      if (this.#isUsed(number)) this.#numbers.set(hexOf(this.#digestAt(number)), number);
      else this.#free.push(number);
    }
    this.#idle = this.#numbers.size;
  }

  /** Whether `mapIndexOf` has a number for a new set. */
  get hasRoom(): boolean {
    return this.#free.length + this.#idle > 0;
  }

  get count(): number {
    return this.#numbers.size;
  }

  /**
   * Returns the number of a set in the map. A new set gets a free number, or the number of a set without
   * addresses, after `awaitGracePeriod`. Returns `CLOSED_SET` if there is none.
   */
  mapIndexOf(set: SelectorSet, awaitGracePeriod: () => void): number {
    const named = this.#ofSets.get(set);
    if (named !== undefined && this.#sets.get(named) === set) return named;
    const digest = digestOf(set);
    const known = this.#numbers.get(hexOf(digest));
    if (known !== undefined) {
      this.#bindSet(known, set);
      return known;
    }
    if (this.#free.length === 0) this.#makeRoom(awaitGracePeriod);
    const number = this.#free.pop();
    if (number === undefined) return CLOSED_SET;
    this.#idle += 1;
    this.#numbers.set(hexOf(digest), number);
    for (const slot of [0, 1] as const) this.#storeIndex(number, slot, 0);
    this.#bindSet(number, set);
    this.#digestAt(number).set(digest);
    return number;
  }

  /** Must be called when an address gets this number, and with -1 when it loses it. */
  use(number: number, by: 1 | -1): void {
    if (number === 0 || number === CLOSED_SET) return;
    const uses = (this.#uses[number] ?? 0) + by;
    this.#uses[number] = uses;
    if (uses === 0) this.#idle += 1;
    else if (uses === 1 && by === 1) this.#idle -= 1;
  }

  /**
   * Stores the indexes of all sets in the program of a slot; null if the program has no member tables. No
   * packet may read the slot. A set whose keys this process does not know yet is closed in this slot.
   */
  fill(slot: Slot, program: MemberIndex | null): void {
    this.#programs[slot] = program;
    for (const number of this.#numbers.values()) {
      const set = this.#sets.get(number);
      this.#storeIndex(number, slot, set === undefined ? 0 : (program?.indexOf(set) ?? 0));
    }
  }

  /**
   * The program of a slot; undefined if an earlier process put it in force, null if it has no member tables.
   */
  programOf(slot: Slot): MemberIndex | null | undefined {
    return this.#programs[slot];
  }

  /** The set with a number in this map; undefined if this process does not know its keys. */
  setAt(number: number): SelectorSet | undefined {
    return this.#sets.get(number);
  }

  #bindSet(number: number, set: SelectorSet): void {
    this.#sets.set(number, set);
    this.#ofSets.set(set, number);
    for (const slot of [0, 1] as const) {
      const program = this.#programs[slot];
      if (program != null) this.#storeIndex(number, slot, program.indexOf(set));
    }
  }

  #makeRoom(awaitGracePeriod: () => void): void {
    for (const [hex, number] of this.#numbers) {
      if (this.#uses[number] !== 0) continue;
      this.#numbers.delete(hex);
      this.#sets.delete(number);
      this.#digestAt(number).fill(0);
      this.#awaitingGracePeriod.push(number);
    }
    this.#idle = 0;
    if (this.#awaitingGracePeriod.length === 0) return;
    awaitGracePeriod();
    this.#free.push(...this.#awaitingGracePeriod);
    this.#awaitingGracePeriod = [];
  }

  #storeIndex(number: number, slot: Slot, index: number): void {
    Atomics.store(this.#words, number * MEMBER_SET.words + MEMBER_SET.indexes + slot, index);
  }

  #isUsed(number: number): boolean {
    const end = (number + 1) * MEMBER_SET.words;
    for (let at = number * MEMBER_SET.words + MEMBER_SET.digest; at < end; at++) if (this.#words[at] !== 0) return true;
    return false;
  }

  #digestAt(number: number): Uint8Array {
    const at = (number * MEMBER_SET.words + MEMBER_SET.digest) * 4;
    return this.#digests.subarray(at, at + MEMBER_SET.digestBytes);
  }
}

function digestOf({ keys }: SelectorSet): Uint8Array {
  const text = JSON.stringify([...keys].sort());
  return createHash('sha256').update(text).digest().subarray(0, MEMBER_SET.digestBytes);
}

function hexOf(digest: Uint8Array): string {
  return Buffer.from(digest).toString('hex');
}
