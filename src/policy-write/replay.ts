import { Refused } from '#bus/refused.js';
import type { PolicyRecord } from '#contracts/policy-record.js';
import type { Prepared } from '#policy-thread/policy-work.js';
import { storedText, textKey } from '#policy-thread/stored-text.js';
import type { Replay } from '#statecharts/policy.setup.js';
import type { EnforcedRecord, StoredPolicyToEnforce } from '#store/store-types.js';
import { inForceBy, type ToEnforce, withoutPolicy } from './in-force.js';
import { prepareIn } from './prepare-in-thread.js';
import { type PrepareWritePorts, refusalOfText } from './prepare-write.js';

/**
 * Compiles the program that must be in force according to the store, for example after the process has
 * started. Throws if the stored policy cannot be read.
 */
export async function replay(ports: PrepareWritePorts, signal: AbortSignal): Promise<Replay> {
  const { policies, compiled } = ports;
  const known = await compileKnown(ports, await policies.enforced(), { signal, compiled });
  return known ?? compileStored(ports, await policies.toEnforce(), { signal, compiled });
}

/**
 * Compiles a policy from the cache of the policy thread: to read and parse the text again takes most of the
 * time of a compilation for new members. Returns null if the thread does not have the policy.
 */
export async function compileKnown(
  ports: PrepareWritePorts,
  { record, generation, everActivated }: EnforcedRecord,
  { signal, compiled }: CompileOptions,
): Promise<Replay | null> {
  if (record === null) return null;
  const prepared = await prepareIn(
    ports,
    { kind: 'prepare_stored', key: textKey(record), surroundings: ports.surroundings },
    { signal, memberWaitMs: 0 },
  );
  if (prepared.kind !== 'prepared_stored') return null;
  return replayOf(record, generation, prepared, everActivated, compiled);
}

/**
 * Compiles a policy of the store, or of a proposal of another node. Throws a `Refused` if this build cannot
 * read the policy.
 */
export async function compileStored(
  ports: PrepareWritePorts,
  { stored, generation, everActivated }: StoredPolicyToEnforce,
  { signal, memberWaitMs = 0, compiled }: CompileOptions,
): Promise<Replay> {
  const { surroundings } = ports;
  if (stored === null) {
    return { ...withoutPolicy(surroundings.fallback, generation), everActivated };
  }
  const prepared = await prepareIn(
    ports,
    {
      kind: 'prepare',
      text: storedText(stored),
      surroundings,
      integrations: null,
      compile: true,
      key: textKey(stored.record),
    },
    { signal, memberWaitMs },
  );
  if (prepared.kind !== 'prepared') {
    const refused = refusalOfText(prepared);
    throw new Refused({ ...refused, detail: `read the stored policy: ${refused.detail}` });
  }
  return replayOf(stored.record, generation, prepared, everActivated, compiled);
}

type CompileOptions = {
  readonly signal: AbortSignal;
  /** The longest wait for selectors that are not resolved yet; 0 by default. */
  readonly memberWaitMs?: number;
  readonly compiled?: ((stored: ToEnforce) => void) | undefined;
};

/** How long the rehearsal of a proposal waits for the first list of a new selector. */
export const PROPOSAL_MEMBER_WAIT_MS = 1_000;

/** The write of one group by another node. `body` is the text of the group; null removes the group. */
type GroupOfProposal = {
  readonly record: PolicyRecord;
  readonly generation: number;
  readonly group: string;
  readonly body: Uint8Array | null;
};

/**
 * Compiles the proposed write of one group, as the node that proposes it does: on the policy that the thread
 * has compiled before. Returns null if the thread does not have that policy; then the whole policy must be
 * compiled.
 */
export async function compileGroup(
  ports: PrepareWritePorts,
  { record, generation, group, body }: GroupOfProposal,
  signal: AbortSignal,
): Promise<Replay | null> {
  const { policies, integrations, surroundings } = ports;
  const base = (await policies.list()).find(({ id }) => id === record.id);
  if (base?.revision !== record.revision - 1) return null;
  const prepared = await prepareIn(
    ports,
    {
      kind: 'prepare_group',
      base: { key: textKey(base), text: null },
      group,
      body,
      surroundings,
      integrations: (await integrations.list()).map(({ name }) => name),
      compile: true,
      key: textKey(record),
    },
    { signal, memberWaitMs: PROPOSAL_MEMBER_WAIT_MS },
  );
  return prepared.kind === 'prepared_group' ? replayOf(record, generation, prepared, true) : null;
}

async function replayOf(
  record: PolicyRecord,
  generation: number,
  prepared: Omit<Prepared, 'warnings'>,
  everActivated: boolean,
  compiled: (stored: ToEnforce) => void = () => {},
): Promise<Replay> {
  const { program, sample } = prepared;
  if (program === null || sample === null)
    throw new Error('read the stored policy: the active policy has the mode disabled');
  const toEnforce = inForceBy(record, generation, prepared, program);
  compiled(toEnforce);
  return { ...toEnforce, sample: await sample, everActivated };
}
