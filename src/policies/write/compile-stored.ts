import { Refused } from '#bus/refused.js';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';
import type { Prepared } from '#policies/thread/policy-work.js';
import { storedText, textKey } from '#policies/thread/stored-text.js';
import type { CompiledStoredPolicy } from '#statecharts/follow.chart.js';
import type { EnforcedRecord, PolicyToEnforce } from '#store/store-types.js';
import { compiledPolicyOf, fallbackPolicy, type UnsampledPolicy } from './compiled-policy.js';
import { prepareIn } from './prepare-in-thread.js';
import { type PrepareWritePorts, refusalOfText } from './prepare-write.js';

/**
 * Compiles the program that must be in force according to the store, for example after the process has
 * started. Throws if the stored policy cannot be read.
 */
export async function compileActive(ports: PrepareWritePorts, signal: AbortSignal): Promise<CompiledStoredPolicy> {
  const { policies, onCompiled } = ports;
  const known = await compileFromCache(ports, await policies.enforced(), { signal, onCompiled });
  return known ?? compileStored(ports, await policies.toEnforce(), { signal, onCompiled });
}

/**
 * Compiles a policy from the cache of the policy thread, because reading and parsing the text would take most
 * of the time. Returns null if the cache does not contain the policy.
 */
export async function compileFromCache(
  ports: PrepareWritePorts,
  { record, generation, everActivated }: EnforcedRecord,
  { signal, onCompiled }: CompileOptions,
): Promise<CompiledStoredPolicy | null> {
  if (record === null) return null;
  const prepared = await prepareIn(
    ports,
    { kind: 'prepare_stored', key: textKey(record), surroundings: ports.surroundings },
    { signal, members: { waitMs: 0, mayWatch: true } },
  );
  if (prepared.kind !== 'prepared_stored') return null;
  return compiledStoredPolicyOf(record, generation, prepared, everActivated, onCompiled);
}

/**
 * Compiles a policy of the store, or of a proposal (policy write before its commit) of another node. Throws a
 * `Refused` if this build cannot read the policy.
 */
export async function compileStored(
  ports: PrepareWritePorts,
  { stored, generation, everActivated }: PolicyToEnforce,
  { signal, memberWaitMs = 0, onCompiled }: CompileOptions,
): Promise<CompiledStoredPolicy> {
  const { surroundings } = ports;
  if (stored === null) {
    return { ...fallbackPolicy(surroundings, generation), everActivated };
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
    { signal, members: { waitMs: memberWaitMs, mayWatch: true } },
  );
  if (prepared.kind !== 'prepared') {
    const refused = refusalOfText(prepared);
    throw new Refused({ ...refused, detail: `read the stored policy: ${refused.detail}` });
  }
  return compiledStoredPolicyOf(stored.record, generation, prepared, everActivated, onCompiled);
}

type CompileOptions = {
  readonly signal: AbortSignal;
  /** The maximum time in milliseconds to wait for selectors that are not resolved yet; 0 by default. */
  readonly memberWaitMs?: number;
  readonly onCompiled?: ((policy: UnsampledPolicy) => void) | undefined;
};

/**
 * The maximum time in milliseconds for which a node that checks the proposed write of another node waits for
 * the first list of a new selector.
 */
export const PROPOSAL_MEMBER_WAIT_MS = 1_000;

/** The write of one group by another node. `body` is the text of the group; null removes the group. */
type GroupOfProposal = {
  readonly record: PolicyRecord;
  readonly generation: number;
  readonly group: string;
  readonly body: Uint8Array | null;
};

/**
 * Compiles the proposed write of one group. Like the proposing node, changes the policy in the cache of the
 * policy thread and compiles only what changed. Returns null if the cache does not contain that policy; then
 * the whole policy must be compiled.
 */
export async function compileProposedGroup(
  ports: PrepareWritePorts,
  { record, generation, group, body }: GroupOfProposal,
  signal: AbortSignal,
): Promise<CompiledStoredPolicy | null> {
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
    { signal, members: { waitMs: PROPOSAL_MEMBER_WAIT_MS, mayWatch: true } },
  );
  return prepared.kind === 'prepared_group' ? compiledStoredPolicyOf(record, generation, prepared, true) : null;
}

async function compiledStoredPolicyOf(
  record: PolicyRecord,
  generation: number,
  prepared: Omit<Prepared, 'warnings'>,
  everActivated: boolean,
  onCompiled: (policy: UnsampledPolicy) => void = () => {},
): Promise<CompiledStoredPolicy> {
  const { program, samples } = prepared;
  if (program === null || samples === null)
    throw new Error('compile the active policy: its mode is disabled, so it has no program');
  const compiledPolicy = compiledPolicyOf(record, generation, prepared, program);
  onCompiled(compiledPolicy);
  return { ...compiledPolicy, samples: await samples, everActivated };
}
