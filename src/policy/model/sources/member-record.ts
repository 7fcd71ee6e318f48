import { u32At } from '#arrays/read.js';
import {
  CLOSED_MEMBER,
  type MemberList,
  type Members,
  type MembershipChange,
  type SelectorSet,
} from '#contracts/kubernetes/membership.js';

/** The members that the changes so far have given. Each thread that decides by members has one. */
export class MemberRecord implements Members {
  readonly #sets = new Map<number, SelectorSet>();
  readonly #owned = new Map<number, SelectorSet>();
  /** Addresses that the last list did not have. */
  readonly #leaving = new Set<number>();
  #isKnown = false;

  /**
   * False before the first `replace`. The owners of addresses are not known then, so no address may get an
   * allow rule by a selector, and each address gets every deny rule of a group with selectors.
   */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  change({ added, addresses, sets, dropped }: MembershipChange): void {
    for (const set of added) this.#sets.set(set.number, set);
    for (let at = 0; at < addresses.length; at++) {
      const number = u32At(sets, at);
      this.#leaving.delete(u32At(addresses, at));
      if (number === 0) this.#owned.delete(u32At(addresses, at));
      else this.#owned.set(u32At(addresses, at), this.#sets.get(number) ?? CLOSED_MEMBER);
    }
    for (const number of dropped) this.#sets.delete(number);
  }

  /**
   * Replaces all members. The addresses that the list does not have are closed until `policyChanged`: the
   * policy in force can have more resolved selectors than the thread has with the list, and its deny rules
   * must still match the former members of these selectors.
   */
  replace(list: MemberList): void {
    const former = [...this.#owned.keys()];
    this.#sets.clear();
    this.#owned.clear();
    this.#leaving.clear();
    this.change(list);
    for (const address of former) {
      if (this.#owned.has(address)) continue;
      this.#owned.set(address, CLOSED_MEMBER);
      this.#leaving.add(address);
    }
    this.#isKnown = true;
  }

  /** Removes the addresses that the last list did not have. A policy for that list must be in force. */
  policyChanged(): void {
    for (const address of this.#leaving) this.#owned.delete(address);
    this.#leaving.clear();
  }

  setOf(address: number): SelectorSet | undefined {
    return this.#owned.get(address);
  }

  /**
   * All members as the change from no members, with the sets that a later change may name. The addresses that
   * the last list did not have are left out.
   */
  list(): MemberList {
    const members = [...this.#owned].filter(([address]) => !this.#leaving.has(address));
    return {
      added: [...this.#sets.values()],
      addresses: Uint32Array.from(members, ([address]) => address),
      sets: Uint32Array.from(members, ([, { number }]) => number),
      dropped: [],
    };
  }
}
