import { AddressMap, AddressSet } from '#addresses/address-map.js';
import { itemAt, u32At } from '#arrays/read.js';
import {
  DENY_ONLY_MEMBER,
  type MemberList,
  type Members,
  type MembershipChange,
  type SelectorSet,
} from '#contracts/kubernetes/membership.js';
import type { Address } from '#contracts/policy/policy-model.js';

/**
 * The present members (addresses that Kubernetes objects own), as the result of all changes so far. Each
 * thread that uses members has its own record.
 */
export class MemberRecord implements Members {
  readonly #sets = new Map<number, SelectorSet>();
  readonly #owned = new AddressMap<SelectorSet>();
  /**
   * Addresses that the last `replace` removed. They are deny-only (no allow rules of groups with selectors
   * apply) until `policyChanged` is called.
   */
  readonly #leaving = new AddressSet();
  #isKnown = false;

  /**
   * False before the first call of `replace`, when the owners of addresses are not known. Then all deny rules
   * of groups with selectors must apply to every address, and no allow rule because of a selector.
   */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  change({ added, addresses, sets, dropped }: MembershipChange): void {
    for (const set of added) this.#sets.set(set.number, set);
    for (let at = 0; at < addresses.length; at++) {
      const address = itemAt(addresses, at);
      const number = u32At(sets, at);
      this.#leaving.delete(address);
      if (number === 0) this.#owned.delete(address);
      else this.#owned.set(address, this.#sets.get(number) ?? DENY_ONLY_MEMBER);
    }
    for (const number of dropped) this.#sets.delete(number);
  }

  /**
   * Replaces all members. Addresses that are not in the list are deny-only (groups with selectors apply only
   * deny rules to them) until `policyChanged` is called. The policy in force can have more resolved
   * selectors than the list, and its deny rules must still match the former members of these selectors.
   */
  replace(list: MemberList): void {
    const former = [...this.#owned.keys()];
    this.#sets.clear();
    this.#owned.clear();
    this.#leaving.clear();
    this.change(list);
    for (const address of former) {
      if (this.#owned.has(address)) continue;
      this.#owned.set(address, DENY_ONLY_MEMBER);
      this.#leaving.add(address);
    }
    this.#isKnown = true;
  }

  /**
   * Removes the addresses that the last list did not contain. Call it when a policy for that list is in
   * force.
   */
  policyChanged(): void {
    for (const address of this.#leaving) this.#owned.delete(address);
    this.#leaving.clear();
  }

  setOf(address: Address): SelectorSet | undefined {
    return this.#owned.get(address);
  }

  /**
   * Returns all members in the form of a change that adds them, with the sets of selectors to which a later
   * change may refer. Omits the addresses that the last list did not contain.
   */
  list(): MemberList {
    const members = [...this.#owned].filter(([address]) => !this.#leaving.has(address));
    return {
      added: [...this.#sets.values()],
      addresses: members.map(([address]) => address),
      sets: Uint32Array.from(members, ([, { number }]) => number),
      dropped: [],
    };
  }
}
