import { createHash } from 'node:crypto';
import { append } from '#arrays/append.js';
import type { SelectorSet } from '#contracts/kubernetes/membership.js';
import { SLOTS, type Slot } from '#dataplane/abi/active-word.js';
import type { MemberIndex } from '#policy/model/sources/member-index.js';
import { DENY_ONLY_SET, MEMBER_SET, MEMBER_SETS, THIRD_WORDS } from './member-layout.js';

/**
 * The sets of selectors in the BPF map `member_sets`. The map index of a set is the index of its entry. It
 * differs from `SelectorSet.number`: it stays the same in the next process, which finds the entry by the
 * digest of the keys of the set. An entry has, for each program slot, the index of the set of groups that the
 * set of selectors selects.
 */
export class MemberSets {
  readonly #words: Uint32Array;
  /**
   * The map `third_indexes`, with the entries for program slot 2; undefined while the datapath has only two
   * program slots.
   */
  #third: Uint32Array | undefined;
  readonly #digests: Uint8Array;
  /** The map index of each set of selectors, by the digest of its keys in hexadecimal. */
  readonly #mapIndexes = new Map<string, number>();
  /** The sets of Kubernetes selectors whose keys this process knows, by index in the BPF map. */
  readonly #sets = new Map<number, SelectorSet>();
  /** The map index that each set of selectors had last. Its entry can belong to another set now. */
  readonly #lastMapIndexes = new WeakMap<SelectorSet, number>();
  /** The number of addresses that have each set of selectors, by the map index of the set. */
  readonly #uses = new Uint32Array(MEMBER_SETS);
  /** The number of sets of selectors in the BPF map that select no address at present. */
  #idle = 0;
  /** The indexes of unused entries of the BPF map. */
  readonly #free: number[] = [];
  /** Map indexes of sets that no address has any more. A BPF program may still have read such an index. */
  #awaitingGracePeriod: number[] = [];
  /** The compiled policy of each program slot; undefined if an earlier process put it in force. */
  readonly #programs: (MemberIndex | null | undefined)[] = SLOTS.map(() => undefined);

  constructor(words: Uint32Array, third?: Uint32Array) {
    this.#words = words;
    this.#third = third;
    this.#digests = new Uint8Array(words.buffer, words.byteOffset, words.length * 4);
    for (let mapIndex = MEMBER_SETS - 1; mapIndex > 0; mapIndex--) {
      if (this.#isUsed(mapIndex)) this.#mapIndexes.set(hexOf(this.#digestAt(mapIndex)), mapIndex);
      else this.#free.push(mapIndex);
    }
    this.#idle = this.#mapIndexes.size;
  }

  /**
   * Uses this memory for the entries of program slot 2. It must contain the entries of the policy in slot 2,
   * if any.
   */
  useThird(third: Uint32Array | undefined): void {
    this.#third = third;
  }

  /** Whether the BPF map has an unused entry for a new set of selectors. */
  get hasRoom(): boolean {
    return this.#free.length + this.#idle > 0;
  }

  get count(): number {
    return this.#mapIndexes.size;
  }

  /**
   * Returns the map index of a set. A new set gets a free entry, or the entry of a set without addresses,
   * after `awaitGracePeriod`. Returns `DENY_ONLY_SET` if there is none.
   */
  mapIndexOf(set: SelectorSet, awaitGracePeriod: () => void): number {
    const last = this.#lastMapIndexes.get(set);
    if (last !== undefined && this.#sets.get(last) === set) return last;
    const digest = digestOf(set);
    const known = this.#mapIndexes.get(hexOf(digest));
    if (known !== undefined) {
      this.#bindSet(known, set);
      return known;
    }
    if (this.#free.length === 0) this.#makeRoom(awaitGracePeriod);
    const mapIndex = this.#free.pop();
    if (mapIndex === undefined) return DENY_ONLY_SET;
    this.#idle += 1;
    this.#mapIndexes.set(hexOf(digest), mapIndex);
    for (const slot of SLOTS) this.#storeGroupSet(mapIndex, slot, 0);
    this.#bindSet(mapIndex, set);
    this.#digestAt(mapIndex).set(digest);
    return mapIndex;
  }

  /** Must be called with 1 when an address gets this map index, and with -1 when an address loses it. */
  use(mapIndex: number, by: 1 | -1): void {
    if (mapIndex === 0 || mapIndex === DENY_ONLY_SET) return;
    const uses = (this.#uses[mapIndex] ?? 0) + by;
    this.#uses[mapIndex] = uses;
    if (uses === 0) this.#idle += 1;
    else if (uses === 1 && by === 1) this.#idle -= 1;
  }

  /**
   * Stores the index of the set of groups of each set for the program of a program slot; null if the program
   * has no member tables. No packet may read the slot. In this slot, the members of a set whose keys this
   * process does not know yet are deny-only (no allow rules of groups with selectors apply).
   */
  fill(slot: Slot, program: MemberIndex | null): void {
    this.#programs[slot] = program;
    for (const mapIndex of this.#mapIndexes.values()) {
      const set = this.#sets.get(mapIndex);
      this.#storeGroupSet(mapIndex, slot, set === undefined ? 0 : (program?.indexOf(set) ?? 0));
    }
  }

  /**
   * The compiled policy of a program slot; undefined if an earlier process put it in force, null without
   * member tables.
   */
  programOf(slot: Slot): MemberIndex | null | undefined {
    return this.#programs[slot];
  }

  /** The set of selectors with a map index; undefined if this process does not know its keys. */
  setAt(mapIndex: number): SelectorSet | undefined {
    return this.#sets.get(mapIndex);
  }

  #bindSet(mapIndex: number, set: SelectorSet): void {
    this.#sets.set(mapIndex, set);
    this.#lastMapIndexes.set(set, mapIndex);
    for (const slot of SLOTS) {
      const program = this.#programs[slot];
      if (program != null) this.#storeGroupSet(mapIndex, slot, program.indexOf(set));
    }
  }

  /** Frees the entries of all sets of selectors that select no address at present. */
  #makeRoom(awaitGracePeriod: () => void): void {
    for (const [hex, mapIndex] of this.#mapIndexes) {
      if (this.#uses[mapIndex] !== 0) continue;
      this.#mapIndexes.delete(hex);
      this.#sets.delete(mapIndex);
      this.#digestAt(mapIndex).fill(0);
      this.#awaitingGracePeriod.push(mapIndex);
    }
    this.#idle = 0;
    if (this.#awaitingGracePeriod.length === 0) return;
    awaitGracePeriod();
    append(this.#free, this.#awaitingGracePeriod);
    this.#awaitingGracePeriod = [];
  }

  #storeGroupSet(mapIndex: number, slot: Slot, groupSet: number): void {
    if (slot < 2) Atomics.store(this.#words, mapIndex * MEMBER_SET.words + MEMBER_SET.indexes + slot, groupSet);
    else if (this.#third !== undefined) Atomics.store(this.#third, mapIndex * THIRD_WORDS, groupSet);
  }

  #isUsed(mapIndex: number): boolean {
    const end = (mapIndex + 1) * MEMBER_SET.words;
    for (let at = mapIndex * MEMBER_SET.words + MEMBER_SET.digest; at < end; at++)
      if (this.#words[at] !== 0) return true;
    return false;
  }

  #digestAt(mapIndex: number): Uint8Array {
    const at = (mapIndex * MEMBER_SET.words + MEMBER_SET.digest) * 4;
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
