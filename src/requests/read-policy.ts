import type { StoredPolicy } from '#contracts/policy-record.js';
import type { PolicyStore } from '#store/store-types.js';

export type PolicyChoice =
  | { readonly by: 'active' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

/** Returns a stored policy; null if there is no such policy. */
export async function readPolicy(policies: PolicyStore, which: PolicyChoice): Promise<StoredPolicy | null> {
  switch (which.by) {
    case 'active':
      return policies.active();
    case 'id':
      return policies.get(which.id);
    case 'name': {
      const record = await policies.findByName(which.name);
      return record === null ? null : policies.get(record.id);
    }
  }
}
