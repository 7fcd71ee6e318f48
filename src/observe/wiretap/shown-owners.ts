import type { OwnerName } from '#contracts/address-owner.js';

/** The fields of a wiretap message for the owners of its addresses. A message without owners lacks both. */
export function shownOwners(
  source: OwnerName | null,
  destination: OwnerName | null,
): { readonly src_owner?: OwnerName | null; readonly dst_owner?: OwnerName | null } {
  return source === null && destination === null ? {} : { src_owner: source, dst_owner: destination };
}
