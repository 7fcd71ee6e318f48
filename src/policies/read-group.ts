import type { StoredPolicy } from '#contracts/policy/policy-record.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { type PolicyThread, PolicyThreadFailed } from '#policies/thread/policy-thread.js';
import type { PolicySurroundings } from '#policies/thread/policy-work.js';
import { storedText, textKey } from '#policies/thread/stored-text.js';
import type { PolicyStore } from '#store/store-types.js';

export type GroupPorts = {
  readonly policies: PolicyStore;
  /**
   * The policy thread that executes writes. Its cache contains the byte offsets of the groups in recently
   * written policies.
   */
  readonly thread: PolicyThread;
  readonly surroundings: PolicySurroundings;
};

/**
 * Returns the record of a policy and the JSON text of one source group. Returns null if the policy or the
 * group does not exist.
 */
export async function readGroup(ports: GroupPorts, id: string, group: string): Promise<StoredPolicy | Refusal | null> {
  try {
    return await read(ports, id, group);
  } catch (failure) {
    if (failure instanceof PolicyThreadFailed) return refusal('feature_unavailable', failure.message);
    throw failure;
  }
}

async function read(
  { policies, thread, surroundings }: GroupPorts,
  id: string,
  group: string,
): Promise<StoredPolicy | Refusal | null> {
  const record = (await policies.list()).find((candidate) => candidate.id === id);
  if (record === undefined) return null;
  const work = { kind: 'locate_group', group, surroundings } as const;
  const base = { key: textKey(record), text: null };
  let located = await thread.perform({ ...work, base });
  if (located.kind === 'unknown') {
    const stored = await policies.revision(id, record.revision);
    if (stored === null) return null;
    located = await thread.perform({ ...work, base: { ...base, text: storedText(stored) } });
  }
  if (located.kind !== 'located') return refusal('feature_unavailable', 'the stored policy cannot be read');
  if (located.span === null) return null;
  const body = await policies.slice(id, record.revision, located.span.from, located.span.to);
  return body === null ? null : { record, body };
}
