import type { EnvelopeMode, Form } from '#contracts/policy/policy-document.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import type { PolicyChange, TextEdit } from '#contracts/policy/policy-record.js';
import { etagOf, type PolicyRecord, type StoredPolicy } from '#contracts/policy/policy-record.js';
import type { PolicyTarget, PolicyWrite } from '#contracts/policy/policy-write.js';
import type { ChangeSize, RevisionOrigin, Via } from '#contracts/policy/revision.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { CA_ABSENT } from '#contracts/service-plane/no-intercept-ca.js';

/** The stored records that a policy write affects (D5). */
export type Located = {
  /** The record to write; null if the write creates a record. */
  readonly existing: PolicyRecord | null;
  readonly active: PolicyRecord | null;
  /** The last record of a removed policy that a rollback creates again; null for all other writes. */
  readonly removed: PolicyRecord | null;
  /** The name that a created record gets if the body contains no name; null for a record without a name. */
  readonly nameOfNew: string | null;
};

/** The name of the record that `PUT /api/v1/policy` creates or replaces if no record is active. */
export const DEFAULT_NAME = 'default';

const sameName = (one: string, other: string): boolean => one.trim().toLowerCase() === other.trim().toLowerCase();

/**
 * Returns the refusal of a policy write that fails independently of its body: `not_found`,
 * `precondition_failed` or `would_deactivate` (D5, D8). Returns null if the write may continue.
 */
export function refusalWithoutBody(write: PolicyWrite, { existing, active, removed }: Located): Refusal | null {
  const { target, operation, ifMatch, ifNoneMatch } = write;
  const mustExist = target.by === 'id' || operation !== 'put';
  if (mustExist && existing === null && removed === null)
    return refusal('not_found', `there is no policy ${textOf(target)}`);
  // If the target is the active policy, compare `If-Match` and `If-None-Match` with the active record.
  // Without an active record, the write may replace another record, which the client has not seen.
  const seen = target.by === 'active' ? active : existing;
  const etag = seen === null && target.by !== 'active' ? null : etagOf(seen);
  if (ifMatch !== undefined && !matchesTag(ifMatch, etag))
    return refusal(
      'precondition_failed',
      etag === null ? 'If-Match needs a stored object, and there is none' : `the ETag is ${etag}`,
    );
  // Without an active record, `existing` is the inactive record that the write would replace.
  const replaced = seen ?? existing;
  if (ifNoneMatch !== undefined && replaced !== null && write.sourceGroup === undefined)
    return refusal('precondition_failed', `the policy exists already; its ETag is ${etagOf(replaced)}`);
  if (storesPolicy(write) && !write.activate && existing?.active === true)
    return refusal(
      'would_deactivate',
      'the policy is active: with activate=false, the active text and the stored text would differ',
    );
  return null;
}

/**
 * Whether a policy is in the store after the write. The removal of one source group also stores the policy.
 */
export function storesPolicy({ operation, sourceGroup }: PolicyWrite): boolean {
  return operation !== 'delete' || sourceGroup !== undefined;
}

/**
 * Returns the refusal of a group write if `If-Match` or `If-None-Match` fails for the source group. Returns
 * null if neither fails.
 */
export function refusalOfGroup({ operation, ifMatch, ifNoneMatch }: PolicyWrite, created: boolean): Refusal | null {
  if (operation === 'put' && ifNoneMatch !== undefined && !created)
    return refusal('precondition_failed', 'the source group exists already');
  if (created && ifMatch?.trim() === '*')
    return refusal('precondition_failed', 'the source group does not exist, so If-Match cannot match');
  return null;
}

function matchesTag(field: string, etag: string | null): boolean {
  if (etag === null) return false;
  const tags: readonly string[] = field.match(/(W\/)?"[^"]*"/g) ?? [];
  return field.trim() === '*' || tags.includes(etag);
}

function textOf(target: PolicyTarget): string {
  switch (target.by) {
    case 'id':
      return target.id;
    case 'name':
      return `named ${target.name}`;
    case 'new':
    case 'active':
      return 'that is active';
  }
}

/** A policy to store, and the fields of the request body that change the policy record. */
export type WrittenPolicy = {
  readonly form: Form;
  readonly mode: EnvelopeMode;
  readonly name: string | null;
  /** The whole policy text, the edit that changes the stored text, or the revision that has the text. */
  readonly text: { readonly body: Uint8Array } | { readonly edit: TextEdit } | { readonly ofRevision: number };
  /** The JSON text that the response contains: the whole policy, or the written group. */
  readonly shown: Uint8Array;
  /** The size of the change; null if it is unknown. A new name is not part of it. */
  readonly size: ChangeSize | null;
};

/**
 * Returns the name of the policy record after the write. If the body contains no name, an existing record
 * keeps its name.
 */
export function nameAfter({ existing, nameOfNew }: Located, name: string | null): string | null {
  return name ?? (existing === null ? nameOfNew : existing.name);
}

/**
 * Returns a refusal for a write by name whose body contains another name; null otherwise. Only a write by id
 * can rename a policy (D5).
 */
export function refusalOfName(target: PolicyTarget, name: string | null): Refusal | null {
  if (target.by !== 'name' || name === null || sameName(target.name, name)) return null;
  const message = `The name must be ${target.name.trim()}, as in the path, or absent. To rename a policy, write it by its id.`;
  return {
    ...refusal('invalid_policy', `/name: ${message}`),
    problems: [{ pointer: '/name', code: 'invalid_name', message }],
  };
}

export type Decision = {
  readonly change: PolicyChange;
  readonly created: boolean;
  readonly stored: StoredPolicy;
  /**
   * The policy in force after the write. `this`: the written policy. `none`: no policy. `unchanged`: the
   * policy that was in force before the write.
   */
  readonly decides: 'this' | 'none' | 'unchanged';
  readonly warnings: readonly Warning[];
};

export type Circumstances = {
  readonly now: string;
  readonly newId: string;
  /** The newest generation (number of an activation) in the store. */
  readonly generation: number;
  /**
   * The highest generation that is taken: by the compiled policy that this process found in the kernel, or by
   * a pending change that reserves it. A new policy must have a higher generation.
   */
  readonly takenGeneration: number;
};

function nextGeneration({ generation, takenGeneration }: Circumstances): number {
  return Math.max(generation, takenGeneration) + 1;
}

/** Returns the id, the revision and the creation time of the record that a PUT writes. */
export function nextRevision({ existing, removed }: Located, { newId, now }: Circumstances) {
  const before = existing ?? removed;
  return { id: before?.id ?? newId, revision: (before?.revision ?? 0) + 1, created_at: before?.created_at ?? now };
}

/** Decides which record a PUT writes, and how the write changes the active record (D5). */
export function decidePut(write: PolicyWrite, located: Located, written: WrittenPolicy, at: Circumstances): Decision {
  const { existing, active } = located;
  const activates = write.activate && written.mode !== 'disabled';
  const record: PolicyRecord = {
    ...nextRevision(located, at),
    name: nameAfter(located, written.name),
    form: written.form,
    mode: written.mode,
    updated_at: at.now,
    updated_by: write.author,
    active: activates,
  };
  const { text } = written;
  const put = 'edit' in text ? { record, edit: { ...text.edit, revision: record.revision - 1 } } : { record, ...text };
  const takes = activates && active !== null && active.id !== record.id;
  const leavesNone = !activates && existing?.active === true;
  const changesWhatIsInForce = activates || leavesNone;
  return {
    change: {
      put,
      origin: originOf(write, written.size, existing !== null && existing.name !== record.name),
      ...(takes ? { deactivate: active.id } : {}),
      generation: changesWhatIsInForce ? nextGeneration(at) : at.generation,
    },
    created: existing === null,
    stored: { record, body: written.shown },
    decides: activates ? 'this' : leavesNone ? 'none' : 'unchanged',
    warnings: [
      ...(takes ? [activityTaken(active)] : []),
      ...(leavesNone ? [NONE_ACTIVE] : []),
      ...(activates && isAuditKept(written) ? [AUDIT_KEPT] : []),
    ],
  };
}

/** Returns what the history keeps about a write. */
function originOf(write: PolicyWrite, size: ChangeSize | null, isRenamed: boolean): RevisionOrigin {
  const { operation, sourceGroup, revision, comment } = write;
  return {
    via: viaOf(write),
    ...(comment === undefined ? {} : { comment }),
    ...(sourceGroup === undefined ? {} : { source_group: sourceGroup }),
    ...(operation === 'rollback' && revision !== undefined ? { of_revision: revision } : {}),
    ...(size === null ? {} : { size: { ...size, other: size.other || isRenamed } }),
  };
}

function viaOf({ operation, sourceGroup, fromFile, terms }: PolicyWrite): Via {
  if (terms?.kind === 'rollout') return 'rollout';
  if (operation === 'rollback') return 'rollback';
  if (sourceGroup !== undefined) return 'group_write';
  return fromFile === true ? 'file' : 'write';
}

const eventOf = ({ author, comment }: PolicyWrite, { now }: Circumstances): PolicyChange['event'] & object => ({
  by: author,
  at: now,
  ...(comment === undefined ? {} : { comment }),
});

/** Decides the activation of a stored policy record. The record keeps its revision, times and author. */
export function decideActivation(
  write: PolicyWrite,
  { record, body }: StoredPolicy,
  active: PolicyRecord | null,
  at: Circumstances,
): Decision {
  return {
    change: {
      activate: record.id,
      event: eventOf(write, at),
      ...(active === null ? {} : { deactivate: active.id }),
      generation: nextGeneration(at),
    },
    created: false,
    stored: { record: { ...record, active: true }, body },
    decides: 'this',
    warnings: [...(active === null ? [] : [activityTaken(active)]), ...(isAuditKept(record) ? [AUDIT_KEPT] : [])],
  };
}

const isAuditKept = ({ form, mode }: Pick<PolicyRecord, 'form' | 'mode'>): boolean =>
  form === 'singleton' && mode === 'audit';

export function decideDelete(write: PolicyWrite, stored: StoredPolicy, at: Circumstances): Decision {
  const { id, active } = stored.record;
  return {
    change: { remove: id, event: eventOf(write, at), generation: active ? nextGeneration(at) : at.generation },
    created: false,
    stored,
    decides: active ? 'none' : 'unchanged',
    warnings: active ? [NONE_ACTIVE] : [],
  };
}

const AUDIT_KEPT: Warning = {
  pointer: '/default_policy',
  code: 'audit_kept',
  message:
    'The active record keeps the mode audit: packets that default_policy or policy.fallback denies are recorded and pass. To deny them, write the record with the mode enforce.',
};

const NONE_ACTIVE: Warning = {
  pointer: '',
  code: 'none_active',
  message: 'No policy is active now: there are no source groups, and policy.fallback decides.',
};

function activityTaken({ id, name }: PolicyRecord): Warning {
  const message = `The policy ${name ?? id} is no longer active; it stays stored.`;
  return { pointer: '', code: 'activity_taken', message };
}

export const NO_INTERCEPT_CA: Warning = {
  pointer: '',
  code: 'no_intercept_ca',
  message: `A rule intercepts TLS, and ${CA_ABSENT}: connections that match such a rule are reset.`,
};
export const FALLBACK_ALLOWS: Warning = {
  pointer: '',
  code: 'fallback_allows',
  message:
    'policy.fallback is allow: after a boot, the node forwards packets without a policy until it enforces this one, and a policy without default_policy allows what no rule decides. To deny these packets, set policy.fallback: deny in the configuration and restart the node; a reload does not change this key.',
};
export const NOT_ENFORCED: Warning = {
  pointer: '',
  code: 'not_enforced',
  message: 'The policy is stored, but nothing enforces it: the configuration has no dataplane section.',
};
