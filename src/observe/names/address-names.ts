import { type AddressKey, addressKey } from '#contracts/policy/address-words.js';
import type { Address } from '#contracts/policy/policy-model.js';

const NONE: readonly string[] = [];

/**
 * Maps each address to the last `namesEach` hostnames for which the DNS proxy granted the address. The
 * most recently granted hostname is first. Above `capacity` addresses, `add` removes the address that was
 * added longest ago.
 */
export class AddressNames {
  readonly #names = new Map<AddressKey, readonly string[]>();

  constructor(
    readonly capacity = 200_000,
    readonly namesEach = 4,
  ) {}

  of(address: Address): readonly string[] {
    return (this.#names.size === 0 ? undefined : this.#names.get(addressKey(address))) ?? NONE;
  }

  add(address: Address, name: string): void {
    const key = addressKey(address);
    const known = this.#names.get(key) ?? NONE;
    if (known[0] === name) return;
    this.#names.delete(key);
    this.#names.set(key, [name, ...known.filter((other) => other !== name)].slice(0, this.namesEach));
    if (this.#names.size <= this.capacity) return;
    // Remove the address that was added longest ago: a `Map` iterates over its keys in insertion order.
    const [oldest] = this.#names.keys();
    if (oldest !== undefined) this.#names.delete(oldest);
  }
}
