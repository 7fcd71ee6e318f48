import type { Assertion, AssertionFailure, CheckedAssertion } from '#contracts/analysis/assertion.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';
import type { PolicyWrite } from '#contracts/policy/policy-write.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import type { PolicyThread } from '#policies/thread/policy-thread.js';
import type { KnownPolicy, PolicySurroundings, PolicyText } from '#policies/thread/policy-work.js';
import { storedText, textKey } from '#policies/thread/stored-text.js';
import { assertionsSchema } from '#policy/document/assertion-schema.js';
import type { PreparedWrite } from '#statecharts/write.chart.js';
import { StoreError } from '#store/store-error.js';
import type { AssertionList, AssertionStore, PolicyStore } from '#store/store-types.js';

/** The maximum number of regions (sets of flows) of an assertion in a response. */
const REGIONS = 3;
const UNREADABLE = 'the stored list of assertions cannot be read, so the write cannot be checked; write the list again';
/** The maximum number of times that the thread may request policies that are not in its cache. */
const ATTEMPTS = 3;

export type AssertionPorts = {
  readonly policies: PolicyStore;
  readonly assertions: Pick<AssertionStore, 'read'>;
  readonly thread: PolicyThread;
  readonly surroundings: PolicySurroundings;
  /** The time in milliseconds within which the assertions of a write are checked. */
  readonly assertionBudgetMs: number;
};

/** The assertions for a write. `revision`: that of the stored list; null if the write has its own list. */
export type ListForWrite = { readonly revision: number | null; readonly assertions: readonly Assertion[] };

/** The lists of assertions that this build can read completely. */
const readable = new WeakSet<AssertionList>();

/** Returns the assertions for a write; null if this build cannot read the stored list. */
export async function listFor(
  { assertions }: Pick<AssertionPorts, 'assertions'>,
  write: PolicyWrite,
): Promise<ListForWrite | null> {
  if (write.assertions !== undefined) return { revision: null, assertions: write.assertions };
  try {
    const list = await assertions.read();
    if (readable.has(list)) return list;
    if (!assertionsSchema.safeParse({ assertions: list.assertions }).success) return null;
    readable.add(list);
    return list;
  } catch (failure) {
    if (failure instanceof StoreError && failure.code === 'store_damaged') return null;
    throw failure;
  }
}

/** Returns a refusal if a write names assertions in `?override` that do not exist; otherwise null. */
export function refusalOfOverrides({ overrides = [] }: PolicyWrite, list: ListForWrite | null): Refusal | null {
  const ids = new Set(list?.assertions.map(({ id }) => id));
  const unknown = overrides.filter((id) => !ids.has(id));
  if (unknown.length === 0) return null;
  const problems = unknown.map((id) => ({
    pointer: '?override',
    code: 'invalid_parameter' as const,
    message: `There is no assertion ${id}.`,
  }));
  return { ...refusal('invalid_query', `?override: there is no assertion ${unknown.join(', ')}`), problems };
}

/**
 * Checks the assertions for a prepared write that changes the policy in force. Returns a refusal if the write
 * breaks an assertion. A dry run is not refused; it names these assertions.
 */
export async function withAssertions(
  ports: AssertionPorts,
  write: PolicyWrite,
  prepared: PreparedWrite,
  given: { readonly list: ListForWrite | null; readonly active: PolicyRecord | null; readonly signal: AbortSignal },
): Promise<PreparedWrite | Refusal> {
  const { list, active, signal } = given;
  const { compiled, change, outcome } = prepared;
  if (compiled === null) return prepared;
  if (list === null) {
    if (!write.dryRun) return { ...refusal('assertion_failed', UNREADABLE), assertions: [] };
    const warning: Warning = {
      pointer: '',
      code: 'assertion_failed',
      message: `The write would be refused: ${UNREADABLE}.`,
    };
    return { ...prepared, outcome: { ...outcome, warnings: [...outcome.warnings, warning] } };
  }
  const { record } = compiled.inForce;
  const isWhole = write.sourceGroup === undefined && 'stored' in outcome;
  const after = record && { record, text: isWhole ? storedText({ record, body: outcome.stored.body }) : null };
  const found = list.assertions.length === 0 ? [] : await checked(ports, { before: active, after, list, signal });
  const failures = failuresOf(found, list, write);
  const refusing = failures.filter(({ effect }) => effect === 'refuses');
  if (refusing.length > 0 && !write.dryRun)
    return { ...refusal('assertion_failed', detailOf(refusing)), assertions: refusing };
  const overrides = failures.filter(({ effect }) => effect === 'overridden').map(({ id }) => id);
  const noted = overrides.length === 0 ? {} : { overrides };
  const warnings = [...outcome.warnings, ...failures.filter(({ effect }) => effect !== 'refuses').map(warningOf)];
  const { origin, event } = change;
  return {
    ...prepared,
    change: {
      ...change,
      ...(origin === undefined ? {} : { origin: { ...origin, ...noted } }),
      ...(event === undefined ? {} : { event: { ...event, ...noted } }),
      ...(list.revision === null ? {} : { assertions: list.revision }),
    },
    outcome: outcome.kind === 'checked' ? { ...outcome, warnings, assertions: failures } : { ...outcome, warnings },
  };
}

type Checking = {
  readonly before: PolicyRecord | null;
  /** The policy after the write. `text`: null if only the policy thread has it. */
  readonly after: { readonly record: PolicyRecord; readonly text: PolicyText | null } | null;
  readonly list: ListForWrite;
  readonly signal: AbortSignal;
};

async function checked(ports: AssertionPorts, checking: Checking): Promise<readonly CheckedAssertion[]> {
  const { thread, surroundings, assertionBudgetMs: budgetMs } = ports;
  const { before, after, list, signal } = checking;
  const { assertions } = list;
  const work = { kind: 'check_assertions', surroundings, assertions, budgetMs, limit: REGIONS } as const;
  let [one, other]: (KnownPolicy | null)[] = [
    before && { key: textKey(before), text: null },
    after && { key: textKey(after.record), text: null },
  ];
  let former: Readonly<Record<string, KnownPolicy | null>> | undefined;
  for (let attempt = 0; attempt <= ATTEMPTS; attempt++) {
    const result = await thread.perform({ ...work, before: one ?? null, after: other ?? null, former }, { signal });
    switch (result.kind) {
      case 'checked_assertions':
        return result.found;
      case 'needs_former':
        former = await formerPolicies(ports, checking, result.assertions);
        break;
      case 'unknown':
        one = await withText(ports, before);
        other = after && { key: textKey(after.record), text: after.text };
    }
  }
  throw new Error('check the assertions: the policy thread does not have the text of the policies');
}

/** Returns the policy in force before a write; null if its text is damaged, as if none were active. */
async function withText({ policies }: AssertionPorts, record: PolicyRecord | null): Promise<KnownPolicy | null> {
  if (record === null) return null;
  const stored = await policies.get(record.id).catch(nullIfDamaged);
  return stored === null ? null : { key: textKey(stored.record), text: storedText(stored) };
}

/** Reads the former policies with which assertions compare. */
async function formerPolicies(
  { policies }: AssertionPorts,
  { before, after, list }: Checking,
  ids: readonly string[],
): Promise<Readonly<Record<string, KnownPolicy | null>>> {
  const found: Record<string, KnownPolicy | null> = {};
  for (const assertion of list.assertions) {
    if (!ids.includes(assertion.id)) continue;
    found[assertion.id] = await formerPolicy(policies, assertion, before ?? after?.record ?? null);
  }
  return found;
}

/** Returns the former policy of an assertion; null if the history does not contain it. */
async function formerPolicy(
  policies: PolicyStore,
  assertion: Assertion,
  inForce: Pick<PolicyRecord, 'id'> | null,
): Promise<KnownPolicy | null> {
  const place = await formerPlace(policies, assertion, inForce);
  const stored = place === null ? null : await policies.revision(place.id, place.revision).catch(nullIfDamaged);
  return stored === null ? null : { key: textKey(stored.record), text: storedText(stored) };
}

/** Returns the policy and the revision with which an assertion compares; null if it compares with none. */
export async function formerPlace(
  policies: Pick<PolicyStore, 'findByName'>,
  assertion: Assertion,
  inForce: Pick<PolicyRecord, 'id'> | null,
): Promise<{ readonly id: string; readonly revision: number } | null> {
  const former = 'opens_nothing_since' in assertion ? assertion.opens_nothing_since : null;
  if (former === null || 'file' in former) return null;
  const { revision, policy } = former;
  const named = policy === undefined ? inForce : await policies.findByName(policy);
  const id = named?.id ?? policy;
  return id === undefined ? null : { id, revision };
}

function nullIfDamaged(failure: unknown): null {
  if (failure instanceof StoreError && failure.code === 'store_damaged') return null;
  throw failure;
}

/** Determines the effect of each failed assertion on a write: refusal, warning or none. */
function failuresOf(
  found: readonly CheckedAssertion[],
  { assertions }: ListForWrite,
  { overrides = [] }: PolicyWrite,
): readonly AssertionFailure[] {
  const byId = new Map(assertions.map((assertion) => [assertion.id, assertion]));
  return found.map((checked) => {
    const { id, result, before } = checked;
    const heldAsLittle = before === 'broken' || (before === 'unknown' && result === 'unknown');
    if (heldAsLittle || byId.get(id)?.on_failure === 'warn') return { ...checked, effect: 'warns' };
    return { ...checked, effect: overrides.includes(id) ? 'overridden' : 'refuses' };
  });
}

function detailOf(refusing: readonly AssertionFailure[]): string {
  const [first] = refusing;
  if (first === undefined) return 'an assertion failed';
  const { id, result, message } = first;
  const others = refusing.length - 1;
  const more = others === 0 ? '' : `, and ${others} more ${others === 1 ? 'assertion' : 'assertions'}`;
  if (result === 'broken') return `the write would break the assertion ${id}: ${message}${more}`;
  return `the assertion ${id} could not be checked: ${message}${more}`;
}

function warningOf({ id, result, message, effect, before }: AssertionFailure): Warning {
  const state = result === 'broken' ? 'is broken' : 'could not be checked';
  const why =
    effect === 'overridden'
      ? 'The write overrides it.'
      : before === 'broken'
        ? 'It was broken before the write.'
        : before === 'unknown' && result === 'unknown'
          ? 'It could not be checked before the write either.'
          : 'It has `on_failure: warn`.';
  return { pointer: '', code: 'assertion_failed', message: `The assertion ${id} ${state}: ${message}. ${why}` };
}
