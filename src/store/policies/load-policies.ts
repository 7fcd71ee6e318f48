import { append } from '#arrays/append.js';
import { intactRecords } from '#store/records/intact-values.js';
import { putJson } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import type { FindingListener } from '#store/store-finding.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import type { Bodies } from './bodies.js';
import type { LastGood, LastGoodFile } from './last-good.js';
import { HEAD, writesOf } from './policy-plan.js';
import type { PolicyHead, PolicyRow, PolicyState } from './policy-row.js';

/** The state of a policy store that contains no commit yet. */
export const NO_POLICIES: PolicyState = {
  head: { generation: 0, active: null, ever_activated: false },
  rows: new Map(),
};

export type LoadedPolicies = {
  readonly state: PolicyState;
  /** Ids of policies whose stored record is damaged. */
  readonly damaged: ReadonlySet<string>;
  /** Policy texts from the last-good copy that could not be written back to the store, by their hash. */
  readonly restored: ReadonlyMap<string, Uint8Array>;
  /** Whether the last-good copy, a file, is older than the generation in force. */
  readonly isCopyOld: boolean;
};

/**
 * Reads the policies of a store, and compares them with the last-good copy, a file. Repairs the store from
 * the copy in three cases: the head (the record that names the active policy) is damaged, the copy has a
 * higher generation, or the active policy is damaged and the copy has the same generation. In all other cases
 * a damaged active policy stays damaged. Throws `store_damaged` if the head is damaged, and there is no copy.
 */
export async function loadPolicies(
  kv: KvStore,
  bodies: Bodies,
  lastGood: LastGoodFile,
  onFinding: FindingListener,
): Promise<LoadedPolicies> {
  const damaged = new Set<string>();
  const rows = await loadRows(kv, damaged, onFinding);
  const head = await loadHead(kv);
  const copy = await lastGood.read();
  const unchanged = { state: { head: head ?? NO_POLICIES.head, rows }, damaged, restored: new Map(), isCopyOld: false };
  const restored = async (from: LastGood): Promise<LoadedPolicies> => {
    const { row, ...repaired } = await restore(kv, bodies, rows, from, onFinding);
    if (row !== null) damaged.delete(row.id);
    return { ...unchanged, ...repaired };
  };
  if (head === null && rows.size === 0 && copy === null) return unchanged;

  if (head === null) {
    if (copy === null)
      throw new StoreError(
        'store_damaged',
        'the store does not contain which policy is active, and there is no last-good copy',
      );
    const repaired = await restored(copy);
    onFinding({
      code: 'head_damaged',
      message: `the store does not contain which policy is active; generation ${copy.head.generation} of the last-good copy is used`,
    });
    return repaired;
  }
  if (copy !== null && copy.head.generation > head.generation) {
    const repaired = await restored(copy);
    onFinding({
      code: 'store_behind',
      message: `the store is at generation ${head.generation} and has lost later generations; generation ${copy.head.generation} of the last-good copy is used`,
    });
    return repaired;
  }
  if (await activeIsDamaged(head, rows, bodies)) {
    if (copy !== null && copy.head.generation === head.generation && copy.head.active === head.active) {
      const repaired = await restored(copy);
      onFinding({
        code: 'active_damaged',
        message: `the active policy was damaged; it is restored from the last-good copy of the same generation ${head.generation}`,
      });
      return repaired;
    }
    if (head.active !== null && !rows.has(head.active)) damaged.add(head.active);
    onFinding({
      code: 'active_lost',
      message: `the active policy of generation ${head.generation} is damaged, and ${
        copy === null ? 'there is no last-good copy' : `the last-good copy is of generation ${copy.head.generation}`
      }`,
    });
    return unchanged;
  }
  return { ...unchanged, isCopyOld: copy?.head.generation !== head.generation };
}

/** Writes the last-good copy to the store. `row`: the active policy of the copy. */
async function restore(
  kv: KvStore,
  bodies: Bodies,
  stored: ReadonlyMap<string, PolicyRow>,
  { head: copied, active }: LastGood,
  onFinding: FindingListener,
): Promise<Pick<LoadedPolicies, 'state' | 'restored'> & { readonly row: PolicyRow | null }> {
  const head = await withoutLostChange(copied, bodies, onFinding);
  const rows = new Map(stored);
  const operations: KvOperation[] = [putJson(HEAD, head)];
  const read = new Map<string, Uint8Array>();
  let row: PolicyRow | null = null;
  if (active !== null) {
    const body = await active.body();
    const write = await bodies.whole(body);
    row = { ...active.row, body_sha256: write.sha256 };
    read.set(write.sha256, body);
    rows.set(row.id, row);
    append(operations, write.operations);
    append(operations, writesOf(row));
  }
  let isWritten = true;
  try {
    await kv.batch(operations, { sync: true });
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    isWritten = false;
  }
  return { state: { head, rows }, restored: isWritten ? new Map() : read, row };
}

/**
 * Removes the pending change from a head if the text of its former policy is lost, because the change can
 * then not be reverted.
 */
async function withoutLostChange(head: PolicyHead, bodies: Bodies, onFinding: FindingListener): Promise<PolicyHead> {
  const { pending, ...others } = head;
  const row = pending?.before.row ?? null;
  if (row === null) return head;
  try {
    await bodies.read(row.body_sha256);
    return head;
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    onFinding({
      code: 'pending_lost',
      message: `generation ${head.generation} was a pending change; it stays in force, because its former policy is lost`,
    });
    return others;
  }
}

/**
 * Returns the stored head (generation, active policy, last commit). Returns null if there is none, or if it
 * is damaged.
 */
async function loadHead(kv: KvStore): Promise<PolicyHead | null> {
  try {
    const bytes = await kv.get(HEAD);
    return bytes === null ? null : RECORDS.head.read(HEAD, bytes);
  } catch (error) {
    if (error instanceof StoreError && error.code === 'store_damaged') return null;
    throw error;
  }
}

/** Returns the intact policy records by id. Adds the ids of the others to `damaged`. */
async function loadRows(
  kv: KvStore,
  damaged: Set<string>,
  onFinding: FindingListener,
): Promise<ReadonlyMap<string, PolicyRow>> {
  const rows = new Map<string, PolicyRow>();
  const entries = intactRecords(kv, RECORDS.policy, ({ message }, key) => {
    damaged.add(key.slice(RECORDS.policy.prefix.length));
    onFinding({ code: 'record_damaged', message });
  });
  for await (const [, row] of entries) rows.set(row.id, row);
  return rows;
}

async function activeIsDamaged(
  { active }: PolicyHead,
  rows: ReadonlyMap<string, PolicyRow>,
  bodies: Bodies,
): Promise<boolean> {
  if (active === null) return false;
  const row = rows.get(active);
  if (row === undefined) return true;
  try {
    await bodies.read(row.body_sha256);
    return false;
  } catch (error) {
    if (error instanceof StoreError && error.code === 'store_damaged') return true;
    throw error;
  }
}
