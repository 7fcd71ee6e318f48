import { type AddressKey, addressKey, addressOfKey } from '#contracts/policy/address-words.js';
import type { Address } from '#contracts/policy/policy-model.js';

/** A `Map` whose keys are addresses of both families. See `addressKey` for the reason. */
export class AddressMap<Value> implements Iterable<readonly [Address, Value]> {
  readonly #values = new Map<AddressKey, Value>();

  get size(): number {
    return this.#values.size;
  }

  get(address: Address): Value | undefined {
    return this.#values.get(addressKey(address));
  }

  has(address: Address): boolean {
    return this.#values.has(addressKey(address));
  }

  set(address: Address, value: Value): void {
    this.#values.set(addressKey(address), value);
  }

  delete(address: Address): boolean {
    return this.#values.delete(addressKey(address));
  }

  clear(): void {
    this.#values.clear();
  }

  *keys(): Generator<Address> {
    for (const key of this.#values.keys()) yield addressOfKey(key);
  }

  values(): IterableIterator<Value> {
    return this.#values.values();
  }

  *[Symbol.iterator](): Generator<readonly [Address, Value]> {
    for (const [key, value] of this.#values) yield [addressOfKey(key), value];
  }
}

/** A `Set` of addresses of both families. */
export class AddressSet implements Iterable<Address> {
  readonly #keys = new Set<AddressKey>();

  constructor(addresses: Iterable<Address> = []) {
    for (const address of addresses) this.add(address);
  }

  get size(): number {
    return this.#keys.size;
  }

  has(address: Address): boolean {
    return this.#keys.has(addressKey(address));
  }

  add(address: Address): void {
    this.#keys.add(addressKey(address));
  }

  delete(address: Address): boolean {
    return this.#keys.delete(addressKey(address));
  }

  clear(): void {
    this.#keys.clear();
  }

  *[Symbol.iterator](): Generator<Address> {
    for (const key of this.#keys) yield addressOfKey(key);
  }
}
