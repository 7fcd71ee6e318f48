import type { PolicyRecord, StoredPolicy } from '#contracts/policy/policy-record.js';

/** A fake of the last-good file (the copy of the active policy beside the store). It stores nothing. */
export const noCopy = { read: async () => null, write: async () => {}, append: async () => true };

const at = '2026-01-02T03:04:05.000Z';

export function storedPolicy(change: Partial<PolicyRecord> & { id: string }, body: string): StoredPolicy {
  const record: PolicyRecord = {
    name: null,
    form: 'envelope',
    mode: 'enforce',
    revision: 1,
    created_at: at,
    updated_at: at,
    updated_by: 'ops',
    active: true,
    ...change,
  };
  return { record, body: Buffer.from(body) };
}
