import type { Warning } from '#contracts/policy/policy-problem.js';
import type { PolicyRecord, StoredPolicy } from '#contracts/policy/policy-record.js';
import type { PolicyChecked, PolicyDeleted, PolicyWrite, PolicyWritten } from '#contracts/policy/policy-write.js';
import type { ChangeSize } from '#contracts/policy/revision.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import type {
  PolicySurroundings,
  PolicyText,
  Prepared,
  PreparePolicy,
  TooLarge,
  Unreadable,
} from '#policies/thread/policy-work.js';
import { inRecord, storedText, textKey } from '#policies/thread/stored-text.js';
import type { PreparedWrite } from '#statecharts/write.chart.js';
import { StoreError } from '#store/store-error.js';
import type { PolicyStore } from '#store/store-types.js';
import {
  type AssertionPorts,
  type ListForWrite,
  listFor,
  refusalOfOverrides,
  withAssertions,
} from './assertion-check.js';
import { compiledPolicyOf, fallbackPolicy, type UnsampledPolicy } from './compiled-policy.js';
import { type PendingWritePorts, refusalWhilePending, withTerms } from './pending-write.js';
import { type MemberOptions, prepareIn, type ThreadPorts } from './prepare-in-thread.js';
import {
  type Circumstances,
  DEFAULT_NAME,
  type Decision,
  decideActivation,
  decideDelete,
  decidePut,
  FALLBACK_ALLOWS,
  type Located,
  NO_INTERCEPT_CA,
  NOT_ENFORCED,
  nameAfter,
  nextRevision,
  refusalOfGroup,
  refusalOfName,
  refusalWithoutBody,
  storesPolicy,
} from './write-decision.js';

/**
 * The time in milliseconds for which a write waits for the first list of a new selector. After this time,
 * the policy is activated with the selector unresolved.
 */
const MEMBER_WAIT_MS = 2_000;

const membersFor = ({ mayWatch }: PolicyWrite): MemberOptions => ({ waitMs: MEMBER_WAIT_MS, mayWatch });

export type PrepareWritePorts = PendingWritePorts &
  ThreadPorts &
  AssertionPorts & {
    /** The integrations (connections to Kubernetes API servers) that a policy may name. */
    readonly integrations: { list(): Promise<readonly { readonly name: string }[]> };
    readonly surroundings: PolicySurroundings;
    /** Whether this node has a dataplane that enforces policies. */
    readonly enforced: boolean;
    readonly now: () => Date;
    /**
     * Returns the generation of the policy that the kernel enforced when this process started; 0 if there
     * was none.
     */
    readonly adoptedGeneration: () => number;
    readonly hasInterceptCa: () => boolean;
    /**
     * Whether a write may be prepared twice. This happens in a cluster if another node has changed the
     * policies.
     */
    readonly repeats: boolean;
    /**
     * Called by `compileActive` after the compilation, before the proof samples (packets with expected
     * verdicts) are computed.
     */
    readonly onCompiled?: (policy: UnsampledPolicy) => void;
    /** Called before each attempt to put the stored policy in force after a start. */
    readonly beforeRestore?: () => Promise<void>;
    /** Called with the reason why the stored policy could not be put in force after a start. */
    readonly restoreFailed?: ((failure: unknown) => void) | undefined;
  };

/** A policy write, and what its preparation depends on. */
type Preparation = {
  readonly ports: PrepareWritePorts;
  readonly write: PolicyWrite;
  readonly located: Located;
  readonly at: Circumstances;
  /** The assertions for the write; null if this build cannot read the stored list. */
  readonly list: ListForWrite | null;
  readonly signal: AbortSignal;
};

/**
 * Performs the steps of a policy write that precede the staging of the compiled policy and the commit of the
 * policy (D7). `statecharts/write.chart.ts` performs the following steps: stage, commit and flip (put the
 * staged policy in force).
 */
export async function prepareWrite(
  ports: PrepareWritePorts,
  write: PolicyWrite,
  signal: AbortSignal,
): Promise<PreparedWrite | Refusal> {
  const base = await ports.policies.headCommit();
  const located = await locate(ports.policies, write);
  const list = await listFor(ports, write);
  const refused =
    (await refusalWhilePending(ports, write)) ?? refusalWithoutBody(write, located) ?? refusalOfOverrides(write, list);
  if (refused !== null) return refused;
  const at: Circumstances = {
    now: ports.now().toISOString(),
    newId: crypto.randomUUID(),
    generation: await ports.policies.generation(),
    takenGeneration: Math.max(ports.adoptedGeneration(), await ports.policies.reservedGeneration()),
  };
  const operation = await prepareOperation({ ports, write, located, at, list, signal });
  if (operation.kind === 'refused') return operation;
  const prepared = await withAssertions(ports, write, operation, { list, active: located.active, signal });
  if (prepared.kind === 'refused') return prepared;
  const based = { ...prepared, change: { ...prepared.change, base } };
  return write.terms === undefined ? based : withTerms(ports, based, write.terms, { by: write.author, at: at.now });
}

async function prepareOperation(preparation: Preparation): Promise<PreparedWrite | Refusal> {
  const { write } = preparation;
  if (write.sourceGroup !== undefined) return prepareGroupWrite(preparation, write.sourceGroup);
  switch (write.operation) {
    case 'put':
      return preparePut(preparation);
    case 'delete':
      return prepareDelete(preparation);
    case 'activate':
      return prepareActivation(preparation);
    case 'rollback':
      return prepareRollback(preparation);
  }
}

async function prepareGroupWrite(
  { ports, write, located, at, signal }: Preparation,
  group: string,
): Promise<PreparedWrite | Refusal> {
  const { existing } = located;
  if (existing === null) throw new Error('a source group can be written only in an existing policy');
  const { form, mode } = existing;
  const prepared = await prepareGroup(ports, existing, { group, write, key: keyOf(located, at) }, signal);
  switch (prepared.kind) {
    case 'prepared_group': {
      const refused = refusalOfGroup(write, prepared.created);
      if (refused !== null) return refused;
      const { edit, groupJson, warnings, created, size } = prepared;
      const written = { form, mode, name: null, text: { edit }, shown: groupJson, size };
      const decision = decidePut(write, located, written, at);
      return preparedWrite(ports, write, { ...decision, created }, prepared, warnings);
    }
    case 'no_such_group':
      return refusal('not_found', `the policy has no source group ${JSON.stringify(group)}`);
    default:
      return refusalOfText(prepared);
  }
}

/**
 * Prepares a group write in the policy thread. If the thread does not have the policy in its cache, repeats
 * the task with the stored policy text.
 */
async function prepareGroup(
  ports: PrepareWritePorts,
  existing: PolicyRecord,
  { group, write, key }: { readonly group: string; readonly write: PolicyWrite; readonly key: string },
  signal: AbortSignal,
) {
  const { policies, surroundings } = ports;
  const integrations = (await ports.integrations.list()).map(({ name }) => name);
  const body = write.operation === 'delete' ? null : write.body;
  const work = {
    kind: 'prepare_group',
    group,
    body,
    key,
    surroundings,
    integrations,
    compile: write.activate,
  } as const;
  const base = textKey(existing);
  const options = { signal, members: membersFor(write) };
  const known = await prepareIn(ports, { ...work, base: { key: base, text: null } }, options);
  if (known.kind !== 'unknown') return known;
  const stored = await policies.get(existing.id);
  if (stored === null) throw new Error(`the policy ${existing.id} is missing in the store`);
  const prepared = await prepareIn(ports, { ...work, base: { key: base, text: storedText(stored) } }, options);
  if (prepared.kind === 'unknown')
    throw new Error(`the policy thread does not have the text of the policy ${existing.id}`);
  return prepared;
}

/** Returns the cache key of the text that the policy record will have after the write. */
function keyOf(located: Located, at: Circumstances): string {
  return textKey({ ...nextRevision(located, at), updated_at: at.now });
}

async function preparePut(preparation: Preparation): Promise<PreparedWrite | Refusal> {
  const { ports, write, located, at, signal } = preparation;
  const { policies, surroundings } = ports;
  const integrations = (await ports.integrations.list()).map(({ name }) => name);
  const recordMode = (write.target.by === 'active' ? located.active?.mode : located.existing?.mode) ?? 'enforce';
  const prepared = await prepareIn(
    ports,
    {
      kind: 'prepare',
      text: { body: write.body, form: write.form, recordMode },
      surroundings,
      integrations,
      compile: write.activate,
      key: keyOf(located, at),
      ...comparedWith(preparation),
      ...keptFor(preparation),
    },
    { transfer: !ports.repeats, signal, members: membersFor(write) },
  );
  if (prepared.kind !== 'prepared') return refusalOfText(prepared);
  const misnamed = refusalOfName(write.target, prepared.name);
  if (misnamed !== null) return misnamed;
  const name = nameAfter(located, prepared.name);
  const owner = name === null ? null : await policies.findByName(name);
  if (owner !== null && owner.id !== located.existing?.id)
    return refusal('name_taken', `the name ${name ?? ''} belongs to the policy ${owner.id}`);

  const { mode, policyJson, warnings } = prepared;
  const size = await sizeOf(preparation, prepared.size);
  const written = { form: write.form, mode, name: prepared.name, text: { body: policyJson }, shown: policyJson, size };
  const decision = decidePut(write, located, written, at);
  return preparedWrite(ports, write, decision, prepared, warnings);
}

/**
 * Prepares a write of the document of an earlier revision: its form, its mode and its text. The policy keeps
 * its name. A removed policy is created again, with its last name if no other policy has it.
 */
async function prepareRollback(preparation: Preparation): Promise<PreparedWrite | Refusal> {
  const { ports, write, located, at, signal } = preparation;
  const policy = located.existing ?? located.removed;
  const { revision = 0 } = write;
  const stored = policy === null ? null : await ports.policies.revision(policy.id, revision);
  if (stored === null) return refusal('not_found', `the history of the policy has no revision ${revision}`);
  const { form, mode } = stored.record;
  const text = storedText(stored);
  const prepared = await prepareIn(
    ports,
    {
      kind: 'prepare',
      text,
      surroundings: ports.surroundings,
      integrations: (await ports.integrations.list()).map(({ name }) => name),
      compile: write.activate,
      key: keyOf(located, at),
      ...comparedWith(preparation),
      ...keptFor(preparation),
    },
    { signal, members: membersFor(write) },
  );
  if (prepared.kind === 'too_large') return refusalOfText(prepared);
  if (prepared.kind === 'unreadable') return noLongerValid(prepared, text);
  const size = await sizeOf(preparation, prepared.size);
  const written = { form, mode, name: null, text: { ofRevision: revision }, shown: stored.body, size };
  const decision = decidePut(write, located, written, at);
  return preparedWrite(ports, write, decision, prepared, prepared.warnings.map(inRecord(text)));
}

/** Returns the cache key of the revision with which the policy thread compares a write, for the history. */
function comparedWith({ write, located: { existing } }: Preparation): Pick<PreparePolicy, 'before'> {
  return write.dryRun ? {} : { before: existing === null ? null : textKey(existing) };
}

/**
 * Returns the cache key of the policy in force if the check of assertions needs that policy after the
 * preparation of the write.
 */
function keptFor({ list, located: { active } }: Pick<Preparation, 'list' | 'located'>): Pick<PreparePolicy, 'inForce'> {
  return active === null || !list?.assertions.length ? {} : { inForce: textKey(active) };
}

/**
 * Returns the size of the change of a write. `known`: the size, if the policy thread had the revision before
 * in its cache. Null if the size is unknown, because that revision cannot be read.
 */
async function sizeOf(preparation: Preparation, known: ChangeSize | null): Promise<ChangeSize | null> {
  const { ports, write, located, at, signal } = preparation;
  const { existing } = located;
  if (known !== null || write.dryRun || existing === null) return known;
  const before = await ports.policies.get(existing.id).catch((failure: unknown) => {
    if (failure instanceof StoreError && failure.code === 'store_damaged') return null;
    throw failure;
  });
  if (before === null) return null;
  const work = { kind: 'measure' as const, key: keyOf(located, at), before: storedText(before) };
  return (await ports.thread.perform(work, { signal })).size;
}

async function prepareActivation(preparation: Preparation): Promise<PreparedWrite | Refusal> {
  const { ports, write, located, at, signal } = preparation;
  const { surroundings } = ports;
  const stored = await readExisting(ports, located);
  if (stored === null) return refusal('not_found', 'there is no such policy');
  const { record } = stored;
  // After a restore of the data folder, the kernel can enforce a newer compiled policy than that of the
  // active record. Then the active record counts as not in force, so that its activation replaces this
  // policy. Generations that a pending change reserves are not newer.
  const isInForce = record.active && ports.adoptedGeneration() <= (await ports.policies.reservedGeneration());
  if (record.active && !isInForce && write.terms !== undefined)
    return refusal(
      'nothing_activated',
      'the kernel enforces a policy that the store does not contain, so the write could not be reverted',
    );
  if (isInForce) {
    const unchanged: Decision = {
      change: { generation: at.generation },
      created: false,
      stored,
      decides: 'unchanged',
      warnings: [],
    };
    return preparedWrite(ports, write, unchanged, null, []);
  }
  if (record.mode === 'disabled')
    return refusal('cannot_activate', 'the mode of the policy is disabled; write it with the mode audit or enforce');
  const text = storedText(stored);
  const integrations = (await ports.integrations.list()).map(({ name }) => name);
  const key = textKey(record);
  const prepared = await prepareIn(
    ports,
    { kind: 'prepare', text, surroundings, integrations, compile: true, key, ...keptFor(preparation) },
    { signal, members: membersFor(write) },
  );
  if (prepared.kind === 'too_large') return refusalOfText(prepared);
  if (prepared.kind === 'unreadable') {
    return noLongerValid(prepared, text);
  }
  const decision = decideActivation(write, stored, record.active ? null : located.active, at);
  return preparedWrite(ports, write, decision, prepared, prepared.warnings.map(inRecord(text)));
}

function noLongerValid(unreadable: Unreadable, text: PolicyText): Refusal {
  const problems = unreadable.problems.map(inRecord(text));
  const { detail } = refusalOfText({ ...unreadable, problems });
  return { ...refusal('cannot_activate', `the stored policy is no longer valid: ${detail}`), problems };
}

async function readExisting({ policies }: PrepareWritePorts, { existing }: Located): Promise<StoredPolicy | null> {
  return existing === null ? null : policies.get(existing.id);
}

async function prepareDelete({ ports, write, located, at }: Preparation): Promise<PreparedWrite | Refusal> {
  const stored = await readExisting(ports, located);
  if (stored === null) return refusal('not_found', 'there is no such policy');
  return preparedWrite(ports, write, decideDelete(write, stored, at), null, []);
}

function preparedWrite(
  { enforced, surroundings, hasInterceptCa }: PrepareWritePorts,
  write: PolicyWrite,
  decision: Decision,
  prepared: Prepared | null,
  found: readonly Warning[],
): PreparedWrite {
  const { change, created, stored } = decision;
  const { generation } = change;
  const compiled = policyToActivate(decision, prepared, surroundings);
  const unenforced = !enforced && storesPolicy(write) ? [NOT_ENFORCED] : [];
  const intercepts = decision.decides === 'this' && prepared?.inspected?.intercepts === true;
  const unsigned = intercepts && !hasInterceptCa() ? [NO_INTERCEPT_CA] : [];
  const isOpen = enforced && surroundings.fallback === 'allow' && endsTrial(write, decision) ? [FALLBACK_ALLOWS] : [];
  const warnings = [...found, ...decision.warnings, ...unsigned, ...unenforced, ...isOpen];
  const outcome: PolicyWritten | PolicyDeleted | PolicyChecked = write.dryRun
    ? { kind: 'checked', stored, warnings, programLines: 0, proof: null, change, diff: null, assertions: [] }
    : storesPolicy(write)
      ? { kind: 'written', created, stored, generation, warnings, proof: null }
      : { kind: 'deleted', generation, warnings };
  return { kind: 'prepared_write', change, compiled, outcome };
}

/**
 * Whether the write puts a whole policy in force that denies packets, which a policy in the mode `audit`
 * does not.
 */
const endsTrial = ({ sourceGroup }: PolicyWrite, { decides, stored }: Decision): boolean =>
  sourceGroup === undefined && decides === 'this' && stored.record.mode === 'enforce';

function policyToActivate(
  { change, stored, decides }: Decision,
  prepared: Prepared | null,
  surroundings: PolicySurroundings,
): PreparedWrite['compiled'] {
  const { generation } = change;
  switch (decides) {
    case 'unchanged':
      return null;
    case 'none':
      return fallbackPolicy(surroundings, generation);
    case 'this': {
      if (prepared?.program == null || prepared.samples === null)
        throw new Error('prepare a policy write: the policy to activate has no compiled program');
      const { samples } = prepared;
      return { samples, ...compiledPolicyOf(stored.record, generation, prepared, prepared.program) };
    }
  }
}

async function locate(policies: PolicyStore, { target, operation }: PolicyWrite): Promise<Located> {
  const records = await policies.list();
  const active = records.find((record) => record.active) ?? null;
  const none = { removed: null, nameOfNew: null };
  switch (target.by) {
    case 'active':
      return {
        active,
        existing: active ?? (await policies.findByName(DEFAULT_NAME)),
        ...none,
        nameOfNew: DEFAULT_NAME,
      };
    case 'new':
      return { active, existing: null, ...none };
    case 'id': {
      const existing = records.find(({ id }) => id === target.id) ?? null;
      if (existing !== null || operation !== 'rollback') return { active, existing, ...none };
      const [removed = null] = await policies.history(target.id, { limit: 1 });
      const name = removed?.name ?? null;
      const isTaken = name !== null && (await policies.findByName(name)) !== null;
      return { active, existing, removed, nameOfNew: isTaken ? null : name };
    }
    case 'name':
      return { active, existing: await policies.findByName(target.name), ...none, nameOfNew: target.name.trim() };
  }
}

export function refusalOfText(text: Unreadable | TooLarge): Refusal {
  if (text.kind === 'too_large') return refusal('capacity_exceeded', text.detail);
  const [first] = text.problems;
  const more = text.problems.length > 1 ? ` (and ${text.problems.length - 1} more)` : '';
  const place = first === undefined || first.pointer === '' ? '' : `${first.pointer}: `;
  const detail = first === undefined ? 'the policy is not valid' : `${place}${first.message}${more}`;
  return { ...refusal(text.code, detail), problems: text.problems };
}
