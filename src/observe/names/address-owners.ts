import type { OwnerChanges, OwnerName } from '#contracts/kubernetes/address-owner.js';
import { type AddressKey, addressKey } from '#contracts/policy/address-words.js';
import type { Address } from '#contracts/policy/policy-model.js';

/**
 * The pod or node that owned an address from `sinceMs` (inclusive) to `untilMs` (exclusive), in milliseconds
 * since 1970.
 */
type Term = { readonly owner: OwnerName; readonly sinceMs: number; readonly untilMs: number };

/**
 * The pods and nodes that own addresses over time, so that an event gets the name of the pod that had
 * the address at the time of the event. Above `capacity` addresses, further addresses have no owner. Former
 * owners are kept for the `formerAddresses` addresses that changed last, at most `formerEach` for each
 * address.
 */
export class AddressOwners {
  readonly #current = new Map<AddressKey, Term>();
  readonly #former = new Map<AddressKey, readonly Term[]>();

  constructor(
    readonly capacity = 200_000,
    readonly formerAddresses = 20_000,
    readonly formerEach = 4,
  ) {}

  /** Whether no address ever had an owner. */
  get isEmpty(): boolean {
    return this.#current.size === 0 && this.#former.size === 0;
  }

  /** Returns the owner of an address at a time in milliseconds since 1970. */
  of(address: Address | null, atMs: number): OwnerName | null {
    if (address === null || this.isEmpty) return null;
    const key = addressKey(address);
    const current = this.#current.get(key);
    if (current !== undefined && atMs >= current.sinceMs) return current.owner;
    const former = this.#former.get(key);
    return former?.findLast(({ sinceMs, untilMs }) => sinceMs <= atMs && atMs < untilMs)?.owner ?? null;
  }

  change({ replaces, changes, sinceMs }: OwnerChanges): void {
    if (replaces) {
      const owned = new Set(changes.map(({ address }) => addressKey(address)));
      for (const key of [...this.#current.keys()]) if (!owned.has(key)) this.#set(key, null, sinceMs);
    }
    for (const { address, owner } of changes) this.#set(addressKey(address), owner, sinceMs);
  }

  #set(key: AddressKey, owner: OwnerName | null, sinceMs: number): void {
    const current = this.#current.get(key);
    if (current !== undefined) {
      if (owner !== null && isSame(current.owner, owner)) return;
      this.#current.delete(key);
      this.#remember(key, { ...current, untilMs: sinceMs });
    }
    if (owner !== null && this.#current.size < this.capacity)
      this.#current.set(key, { owner, sinceMs, untilMs: Number.POSITIVE_INFINITY });
  }

  #remember(key: AddressKey, term: Term): void {
    const earlier = this.#former.get(key) ?? [];
    this.#former.delete(key);
    this.#former.set(key, [...earlier, term].slice(-this.formerEach));
    if (this.#former.size <= this.formerAddresses) return;
    // Remove the address that changed longest ago: a `Map` iterates over its keys in insertion order.
    const [oldest] = this.#former.keys();
    if (oldest !== undefined) this.#former.delete(oldest);
  }
}

function isSame(one: OwnerName, other: OwnerName): boolean {
  return (
    one.name === other.name &&
    one.namespace === other.namespace &&
    one.kind === other.kind &&
    one.integration === other.integration
  );
}

/**
 * Returns a part of a key that distinguishes the owners of the source and of the destination; empty if
 * neither has an owner.
 */
export function ownersKey(source: OwnerName | null, destination: OwnerName | null): string {
  return source === null && destination === null ? '' : ` ${JSON.stringify([source, destination])}`;
}
