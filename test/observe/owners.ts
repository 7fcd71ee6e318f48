import type { OwnerName } from '#contracts/kubernetes/address-owner.js';

export const pod = (name: string): OwnerName => ({ integration: 'prod', kind: 'pod', namespace: 'shop', name });

/** Returns a message that these pods own the addresses since a time. Null: the address has no owner. */
export const ownersSince = (sinceMs: number, owners: Readonly<Record<number, string | null>>, replaces = false) => ({
  sinceMs,
  replaces,
  changes: Object.entries(owners).map(([address, name]) => ({
    address: Number(address),
    owner: name === null ? null : pod(name),
  })),
});
