import type { OwnerName } from '#contracts/kubernetes/address-owner.js';

/**
 * Returns the fields of a wiretap message for the owners of its addresses. Returns no fields if neither
 * address has an owner.
 */
export function shownOwners(
  source: OwnerName | null,
  destination: OwnerName | null,
): { readonly src_owner?: OwnerName | null; readonly dst_owner?: OwnerName | null } {
  return source === null && destination === null ? {} : { src_owner: source, dst_owner: destination };
}
