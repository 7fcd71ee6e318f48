import { AddressMap, AddressSet } from '#addresses/address-map.js';
import type { OwnerChange, OwnerName } from '#contracts/kubernetes/address-owner.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';

/** An object that owns an address, and the name of its integration. */
export type AddressOwner = { readonly integration: string; readonly object: KubernetesObject };

/**
 * The names of the Kubernetes objects that own addresses. Records which names have changed since the last
 * call of `drainChanges`.
 */
export class OwnerNames {
  readonly #names = new AddressMap<OwnerName>();
  readonly #changed = new AddressSet();

  set(address: Address, owner: AddressOwner | undefined): void {
    const before = this.#names.get(address);
    if (owner === undefined) {
      if (this.#names.delete(address)) this.#changed.add(address);
      return;
    }
    const after = ownerNameOf(owner);
    if (before !== undefined && isSame(before, after)) return;
    this.#names.set(address, after);
    this.#changed.add(address);
  }

  get(address: Address): OwnerName | undefined {
    return this.#names.get(address);
  }

  /** Returns the addresses whose names have changed after the last call, with their present names. */
  drainChanges(): readonly OwnerChange[] {
    const changed = Array.from(this.#changed, (address) => ({ address, owner: this.#names.get(address) ?? null }));
    this.#changed.clear();
    return changed;
  }
}

export function ownerNameOf({ integration, object }: AddressOwner): OwnerName {
  const { name } = object;
  return object.resource === 'pods'
    ? { integration, kind: 'pod', namespace: object.namespace, name }
    : { integration, kind: 'node', namespace: null, name };
}

function isSame(a: OwnerName, b: OwnerName): boolean {
  return a.name === b.name && a.namespace === b.namespace && a.kind === b.kind && a.integration === b.integration;
}
