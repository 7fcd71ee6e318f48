import type { PolicyChange, StoredPolicy } from '#contracts/policy/policy-record.js';
import type { PolicyOutcome, PolicyWrite } from '#contracts/policy/policy-write.js';
import { edited } from '#store/policies/bodies.js';
import type { PolicyStore } from '#store/store-types.js';
import { type AnalysisPorts, analysePolicies } from './analysis.js';

/** The maximum number of regions (sets of flows) in the diff of a dry run. */
const REGIONS = 50;

/**
 * Adds to the result of a dry run what the write would change for flows: the policy in force before and
 * after it. If the write changes nothing in force, compares the stored policy before and after it.
 */
export async function withDiff(
  ports: AnalysisPorts,
  write: PolicyWrite,
  outcome: PolicyOutcome,
): Promise<PolicyOutcome> {
  if (outcome.kind !== 'checked') return outcome;
  const compared = await comparedBy(ports.policies, outcome.change);
  if (compared === null) return outcome;
  const references = compared.map((stored, at) => ({ kind: 'text' as const, stored, isStored: at === 0 }));
  // Do not abort the diff when the client disconnects: the write has already ended, and its response needs
  // the diff.
  const asked = { subject: write.author, signal: new AbortController().signal };
  const answer = await analysePolicies(ports, references, { kind: 'diff', limit: REGIONS }, asked);
  return answer.kind === 'diff' ? { ...outcome, diff: answer.diff } : outcome;
}

type Compared = readonly [before: StoredPolicy | null, after: StoredPolicy | null];

/**
 * Returns the policies before and after a change that the diff compares; null if the store has changed since.
 */
async function comparedBy(policies: PolicyStore, change: PolicyChange): Promise<Compared | null> {
  const { put, activate, remove, deactivate } = change;
  const active = await policies.active();
  if (put !== undefined) {
    const after = await written(policies, put);
    if (after === null) return null;
    const stored = await policies.get(put.record.id);
    const wasActive = active?.record.id === put.record.id;
    if (put.record.active) return [active, after];
    return wasActive ? [active, null] : [stored, after];
  }
  if (activate !== undefined) return [active, await policies.get(activate)];
  if (remove !== undefined || deactivate !== undefined)
    return [active, active !== null && [remove, deactivate].includes(active.record.id) ? null : active];
  return [active, active];
}

async function written(policies: PolicyStore, put: NonNullable<PolicyChange['put']>): Promise<StoredPolicy | null> {
  if ('body' in put) return put;
  const { record } = put;
  if ('ofRevision' in put) {
    const earlier = await policies.revision(record.id, put.ofRevision);
    return earlier === null ? null : { record, body: earlier.body };
  }
  const before = await policies.get(record.id);
  if (before === null || before.record.revision !== put.edit.revision) return null;
  return { record, body: edited(before.body, put.edit) };
}
