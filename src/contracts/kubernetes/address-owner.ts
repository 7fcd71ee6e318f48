import type { Address } from '#contracts/policy/policy-model.js';

/** The name of an object that owns an address. `namespace` is null for a node. */
export type OwnerName = {
  readonly integration: string;
  readonly kind: 'pod' | 'node';
  readonly namespace: string | null;
  readonly name: string;
};

/** The Kubernetes object that owns an address now; null if no object owns the address any more. */
export type OwnerChange = { readonly address: Address; readonly owner: OwnerName | null };

/**
 * Owners (Kubernetes objects) of addresses that changed together. `replaces`: all other addresses have no
 * owner any more. `sinceMs`: the time from which the owners own the addresses, in milliseconds since 1970; 0
 * if the time is not known.
 */
export type OwnerChanges = {
  readonly replaces: boolean;
  readonly changes: readonly OwnerChange[];
  readonly sinceMs: number;
};

/** Returns the owner of an address as text, such as `pod shop/web-5d4f of prod`. */
export function ownerText({ integration, kind, namespace, name }: OwnerName): string {
  return `${kind} ${namespace === null ? '' : `${namespace}/`}${name} of ${integration}`;
}
