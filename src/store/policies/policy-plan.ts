import { randomUUID } from 'node:crypto';
import { append } from '#arrays/append.js';
import type { PolicyChange, PolicyPut } from '#contracts/policy/policy-record.js';
import { putJson } from '#store/records/json-value.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, PolicyPlan } from '#store/store-types.js';
import type { BodyWrite, WholeBodyWrite } from './bodies.js';
import { pendingAfter } from './pending-change.js';
import { type PolicyHead, type PolicyRow, type PolicyState, rowOf } from './policy-row.js';
import { factsOf, withFacts } from './revision-facts.js';

/** The key of the head (generation, active policy, last commit) in the local store. */
export const HEAD = 'head';
export const policyKey = (id: string) => `policy/${id}`;
export const historyKey = (id: string, revision: number) => `history/${id}/${String(revision).padStart(12, '0')}`;

/** `body`: the write of the policy text; undefined if the commit writes no policy. */
export type Plan = PolicyPlan & { readonly body: BodyWrite | WholeBodyWrite | undefined };
/**
 * The state of the policies for which a write is planned, and the revisions of its head and of the list of
 * assertions in the shared store.
 */
type PlannedOn = PolicyState & Pick<PolicyPlan, 'headRevision' | 'listRevision'>;
type BodyOf = (put: PolicyPut, stored: PolicyRow | undefined) => Promise<BodyWrite | WholeBodyWrite>;

/**
 * Returns the store operations of a commit. `bodyOf` returns the operations for a policy text. Throws the
 * errors of `PolicyStore.commit`.
 */
export async function planOf(
  change: PolicyChange,
  { headRevision, listRevision, ...state }: PlannedOn,
  bodyOf: BodyOf,
): Promise<Plan> {
  const { put, origin, activate, deactivate, remove, event, pending: write, generation, base } = change;
  const { head, rows } = state;
  if (base !== undefined && base !== (head.commit ?? '')) {
    throw new StoreError(
      'revision_conflict',
      'commit the policy: another write was committed first; nothing was changed',
    );
  }
  if (generation < head.generation) {
    throw new StoreError(
      'generation_regressed',
      `commit generation ${generation}: the store is at generation ${head.generation}`,
    );
  }
  const operations: KvOperation[] = [];
  let active = head.active !== null && (head.active === deactivate || head.active === remove) ? null : head.active;
  let body: BodyWrite | WholeBodyWrite | undefined;

  if (remove !== undefined) {
    const removed = rows.get(remove);
    operations.push({ type: 'delete', key: policyKey(remove) });
    if (removed !== undefined && event !== undefined) {
      const of = { ...event, ...(generation > head.generation && { generation }) };
      const row = withFacts(removed, { ...factsOf(removed), removed: of });
      operations.push(putJson(historyKey(remove, row.revision), row));
    }
  }
  if (put !== undefined) {
    const { record } = put;
    const stored = rows.get(record.id);
    if (stored !== undefined && stored.revision >= record.revision) {
      throw new StoreError(
        'revision_conflict',
        `commit policy ${record.id}: revision ${stored.revision} is stored, and ${record.revision} is not newer`,
      );
    }
    body = await bodyOf(put, stored);
    append(operations, body.operations);
    const activates = record.active || activate === record.id;
    const facts = { ...origin, bytes: body.bytes, ...(activates && { generation }) };
    append(operations, writesOf(withFacts(rowOf(record, body.sha256), facts)));
    if (record.active) active = record.id;
    else if (active === record.id) active = null;
  }
  if (activate !== undefined) {
    const isStored = activate === put?.record.id || (rows.has(activate) && activate !== remove);
    if (!isStored) throw new StoreError('revision_conflict', `activate policy ${activate}: the policy does not exist`);
    active = activate;
    const row = activate === put?.record.id ? undefined : rows.get(activate);
    if (row !== undefined && event !== undefined)
      append(operations, writesOf(withFacts(row, { ...factsOf(row), activated: { ...event, generation } })));
  }
  const commit = randomUUID();
  const pending = pendingAfter(state, write, { generation, commit });
  const reverted = generation === head.generation ? head.reverted : undefined;
  const next: PolicyHead = {
    generation,
    active,
    ever_activated: head.ever_activated || active !== null,
    sequence: (head.sequence ?? 0) + 1,
    commit,
    ...(pending && { pending }),
    ...(reverted && { reverted }),
  };
  operations.push(putJson(HEAD, next));
  return { head: next, headRevision, listRevision, operations, body };
}

/**
 * Returns the operations that write a policy record: as the present record of the policy, and as a revision
 * in the history.
 */
export function writesOf(row: PolicyRow): KvOperation[] {
  return [putJson(policyKey(row.id), row), putJson(historyKey(row.id, row.revision), row)];
}
