import { AddressMap, AddressSet } from '#addresses/address-map.js';
import { familyOf } from '#addresses/ip-address.js';
import { itemAt, u32At } from '#arrays/read.js';
import {
  DENY_ONLY_MEMBER,
  type MemberList,
  type MembershipChange,
  type SelectorSet,
} from '#contracts/kubernetes/membership.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import type { Slot } from '#dataplane/abi/active-word.js';
import { MemberIndex } from '#policy/model/sources/member-index.js';
import { DENY_ONLY_SET } from './member-layout.js';
import { MemberSets } from './member-sets.js';
import { MemberTable } from './member-table.js';

/**
 * The members: addresses of both IP families that Kubernetes objects own, in memory that the BPF programs
 * read (D38a). Addresses of a family without a table are ignored. A deny-only address gets all deny rules and
 * no allow rules of groups with selectors.
 */
export class KernelMembers {
  readonly #tables: ReadonlyMap<Family, MemberTable>;
  readonly #sets: MemberSets;
  /** The sets of Kubernetes selectors that past changes contained, by `SelectorSet.number`. */
  readonly #setsByNumber = new Map<number, SelectorSet>();
  /**
   * Set of selectors → its addresses, which are deny-only (no allow rules of groups with selectors apply)
   * because the map `member_sets` has no entry for the set.
   */
  readonly #withoutEntry = new Map<SelectorSet, AddressSet>();
  /**
   * For each address that has no entry in the BPF map yet (`#withoutEntry`), its set of Kubernetes selectors.
   */
  readonly #waitsFor = new AddressMap<SelectorSet>();
  /**
   * Former members that the last list did not contain. They are deny-only (no allow rules of groups with
   * selectors apply) until the next flip.
   */
  #leaving = new AddressSet();
  readonly #awaitGracePeriod: () => void;

  constructor(
    memory: {
      readonly members: ReadonlyMap<Family, Uint32Array>;
      readonly sets: Uint32Array;
      readonly thirdIndexes?: Uint32Array | undefined;
    },
    random: Uint32Array,
    awaitGracePeriod: () => void,
  ) {
    this.#awaitGracePeriod = awaitGracePeriod;
    const tables = [...memory.members].map(
      ([family, words]) => [family, new MemberTable(family, words, random, awaitGracePeriod)] as const,
    );
    this.#tables = new Map(tables);
    this.#sets = new MemberSets(memory.sets, memory.thirdIndexes);
    for (const [, table] of tables) {
      if (table.count === 0) continue;
      for (const [, mapIndex] of table.members()) this.#sets.use(mapIndex, 1);
    }
  }

  /** The number of addresses that a Kubernetes object owns, without the addresses in `#leaving`. */
  get count(): number {
    let count = -this.#leaving.size;
    for (const table of this.#tables.values()) {
      count += table.count;
      for (const address of table.refusedAddresses()) if (this.#leaving.has(address)) count += 1;
    }
    return count;
  }

  /**
   * Number of addresses that are deny-only (get no allow rule of a group with selectors) because a table is
   * full.
   */
  get refused(): number {
    let refused = 0;
    for (const table of this.#tables.values()) refused += table.refused;
    return refused;
  }

  /** Applies a change. Returns the addresses whose entry in the table has changed. */
  change({ added, addresses, sets, dropped }: MembershipChange): AddressSet {
    for (const set of added) this.#setsByNumber.set(set.number, set);
    const changed = new AddressSet();
    for (let at = 0; at < addresses.length; at++) this.#set(itemAt(addresses, at), u32At(sets, at), changed);
    for (const table of this.#tables.values()) for (const address of table.retryRefused()) changed.add(address);
    for (const set of this.#withoutEntry.keys()) {
      if (!this.#sets.hasRoom) break;
      this.#openWaiting(set, changed);
    }
    for (const number of dropped) this.#setsByNumber.delete(number);
    if (changed.size > 0) for (const table of this.#tables.values()) table.countChange();
    return changed;
  }

  /**
   * Replaces all members, for example those of an earlier process. Addresses that the list does not
   * contain are deny-only until the next flip: the program in force can have selectors that are not resolved
   * any more, and its deny rules must still match the former members of these selectors. Returns the
   * addresses whose entry has changed.
   */
  replace(list: MemberList): AddressSet {
    const kept = new AddressSet(list.addresses);
    const gone: Address[] = [];
    for (const table of this.#tables.values())
      for (const [address] of table.members()) if (!kept.has(address)) gone.push(address);
    this.#setsByNumber.clear();
    this.#withoutEntry.clear();
    this.#waitsFor.clear();
    const sets = new Uint32Array(gone.length).fill(DENY_ONLY_MEMBER.number);
    const removed = this.change({ added: [], addresses: gone, sets, dropped: [] });
    const changed = this.change(list);
    this.#leaving = new AddressSet(gone);
    for (const table of this.#tables.values()) table.complete();
    return new AddressSet([...removed, ...changed]);
  }

  /**
   * Removes the addresses in `#leaving`. Must be called after a flip (activation of a staged policy) to a
   * program that was compiled with the last list.
   */
  removeLeaving(): void {
    for (const address of this.#leaving) this.#set(address, 0, new AddressSet());
    this.#leaving.clear();
  }

  /** See `MemberSets.useThird`. */
  useThirdIndexes(indexes: Uint32Array | undefined): void {
    this.#sets.useThird(indexes);
  }

  /**
   * Stores for each set of selectors the index of its set of groups in the program of a program slot. No
   * packet may read this slot yet.
   */
  fill(slot: Slot, { members, ipv6 }: Pick<Program, 'members' | 'ipv6'>): void {
    this.#sets.fill(slot, members === null ? null : new MemberIndex(members, ipv6));
  }

  /**
   * Returns the number of addresses that are deny-only (get no allow rule of a group with selectors) in a
   * program slot until a policy is compiled with a change: those in the change, and those in `#leaving`.
   */
  uncompiled({ addresses, sets }: Pick<MembershipChange, 'addresses' | 'sets'>, slot: Slot): number {
    const program = this.#sets.programOf(slot);
    if (program === null) return 0;
    let count = this.#leaving.size;
    for (let at = 0; at < addresses.length; at++) {
      const set = this.#setsByNumber.get(u32At(sets, at));
      if (set === undefined) continue;
      if (program === undefined || !program.has(itemAt(addresses, at), program.indexOf(set))) count += 1;
    }
    return count;
  }

  /**
   * Returns the number of addresses that are deny-only (get no allow rule of a group with selectors) in a
   * program slot until a policy is compiled with the present members. Does not count an address whose set
   * this process does not know, or whose set has no entry: a compilation does not change these addresses.
   */
  uncompiledIn(slot: Slot): number {
    const program = this.#sets.programOf(slot);
    if (program == null) return 0;
    let count = 0;
    for (const table of this.#tables.values()) {
      for (const [address, mapIndex] of table.members()) {
        const set = this.#sets.setAt(mapIndex);
        if (set !== undefined && !program.has(address, program.indexOf(set))) count += 1;
      }
    }
    return count;
  }

  /**
   * Sets the owner (Kubernetes object) of an address. `setNumber`: the `SelectorSet.number` of its set; 0
   * without an owner.
   */
  #set(address: Address, setNumber: number, changed: AddressSet): void {
    const table = this.#tables.get(familyOf(address));
    if (table === undefined) return;
    this.#leaving.delete(address);
    const set = this.#setsByNumber.get(setNumber);
    const before = table.mapIndexAt(address);
    // If the set is not known, the address is deny-only. `setNumber` is then that of `DENY_ONLY_MEMBER`, or
    // the sender has left out the set by mistake.
    const mapIndex =
      setNumber === 0 ? 0 : set === undefined ? DENY_ONLY_SET : this.#sets.mapIndexOf(set, this.#awaitGracePeriod);
    if (before === DENY_ONLY_SET) this.#endWait(address);
    if (set !== undefined && mapIndex === DENY_ONLY_SET) this.#beginWait(address, set);
    if (before === mapIndex && mapIndex !== 0) return;
    table.set(address, mapIndex);
    this.#sets.use(before, -1);
    this.#sets.use(mapIndex, 1);
    if (before !== mapIndex) changed.add(address);
    if (set !== undefined && mapIndex !== DENY_ONLY_SET) this.#openWaiting(set, changed);
  }

  /**
   * Stores the map index of a set for the addresses that are deny-only (no allow rules of groups with
   * selectors apply) because the set had no entry.
   */
  #openWaiting(set: SelectorSet, changed: AddressSet): void {
    const addresses = this.#withoutEntry.get(set);
    if (addresses === undefined) return;
    this.#withoutEntry.delete(set);
    for (const address of addresses) this.#set(address, set.number, changed);
  }

  #beginWait(address: Address, set: SelectorSet): void {
    const addresses = this.#withoutEntry.get(set) ?? new AddressSet();
    addresses.add(address);
    this.#withoutEntry.set(set, addresses);
    this.#waitsFor.set(address, set);
  }

  #endWait(address: Address): void {
    const set = this.#waitsFor.get(address);
    if (set === undefined) return;
    this.#waitsFor.delete(address);
    const addresses = this.#withoutEntry.get(set);
    if (addresses?.delete(address) === true && addresses.size === 0) this.#withoutEntry.delete(set);
  }
}
