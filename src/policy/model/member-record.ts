import { u32At } from '#arrays/read.js';
import {
  CLOSED_MEMBER,
  type MemberList,
  type Members,
  type MembershipChange,
  type SelectorSet,
} from '#contracts/membership.js';

/** The members that the changes so far have given. Each thread that decides by members has one. */
export class MemberRecord implements Members {
  readonly #sets = new Map<number, SelectorSet>();
  readonly #owned = new Map<number, SelectorSet>();
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
      if (number === 0) this.#owned.delete(u32At(addresses, at));
      else this.#owned.set(u32At(addresses, at), this.#sets.get(number) ?? CLOSED_MEMBER);
    }
    for (const number of dropped) this.#sets.delete(number);
  }

  replace(list: MemberList): void {
    this.#sets.clear();
    this.#owned.clear();
    this.change(list);
    this.#isKnown = true;
  }

  setOf(address: number): SelectorSet | undefined {
    return this.#owned.get(address);
  }

  /** All members as the change from no members, with the sets that a later change may name. */
  list(): MemberList {
    return {
      added: [...this.#sets.values()],
      addresses: Uint32Array.from(this.#owned.keys()),
      sets: Uint32Array.from(this.#owned.values(), ({ number }) => number),
      dropped: [],
    };
  }
}
