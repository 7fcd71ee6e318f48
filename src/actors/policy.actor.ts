import { fromPromise } from 'xstate';
import { ask } from '#bus/ask.js';
import type { Bus } from '#bus/bus.js';
import type { Message, PolicyProposal } from '#bus/bus-messages.js';
import { accepted, Refused } from '#bus/refused.js';
import type { Cluster } from '#cluster/cluster.js';
import { MemberRefused } from '#cluster/writes/rehearsals.js';
import type { PolicyChange } from '#contracts/policy/policy-record.js';
import type { PolicyWrite } from '#contracts/policy/policy-write.js';
import type { RefusalCode } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import {
  compileActive,
  compileFromCache,
  compileProposedGroup,
  compileStored,
  PROPOSAL_MEMBER_WAIT_MS,
} from '#policies/write/compile-stored.js';
import { type PrepareWritePorts, prepareWrite } from '#policies/write/prepare-write.js';
import { writtenGroup } from '#policies/write/written-group.js';
import { type CompiledStoredPolicy, followChart } from '#statecharts/follow.chart.js';
import { policyChart } from '#statecharts/policy.chart.js';
import { type CompiledPolicy, type Staged, type StageInput, writeChart } from '#statecharts/write.chart.js';
import { StoreError, type StoreErrorCode } from '#store/store-error.js';
import { configuredBy } from './configured.js';

/**
 * The maximum time in milliseconds to wait until the dataplane has written a program to its idle program slot
 * (staged), or discarded it.
 */
const STAGE_TIMEOUT_MS = 60_000;
const FLIP_TIMEOUT_MS = 5_000;

/** The actor sends requests to the dataplane over the bus. */
export function policyActor(bus: Bus<Message>, ports: PrepareWritePorts, cluster: Cluster | null) {
  const publish = (_: unknown, { message }: { message: Message | null }): void => {
    if (message !== null) bus.publish(message);
  };
  const isEnforced = ports.enforced;
  /** Proposes a write to the other members of the cluster. Null on a single node, and for a dry run. */
  const rehearse = async ({ change, compiled: { inForce }, write }: StageInput) => {
    const { dryRun, rehearse: wanted = true } = write;
    if (cluster === null || dryRun || !wanted) return null;
    const { record, generation } = inForce;
    try {
      const plan = await ports.policies.plan(change);
      const bodySha256 = record === null ? '' : await ports.policies.bodySha256(record.id, plan);
      const group = writtenGroup(change, write);
      return await cluster.rehearse(plan, { generation, record, bodySha256, ...(group && { group }) });
    } catch (failure) {
      if (failure instanceof MemberRefused)
        throw new Refused({
          ...failure.refusal,
          code: 'member_refused',
          detail: `the node ${failure.node} refused the policy: ${failure.refusal.detail}`,
        });
      throw storeRefused(failure);
    }
  };
  /**
   * Stages a program. If the program is too large, compiles the policy again without the rules for former
   * members, which no address needs now. These rules only save a later compilation, so the policy must not be
   * refused because of them.
   */
  const stage = async <A extends CompiledPolicy>(compiled: A, signal: AbortSignal) => {
    const request = async <B extends CompiledPolicy>(of: B) => {
      const { program, samples, inForce } = of;
      const parameters = { program, samples, generation: inForce.generation };
      return { ...accepted(await ask(bus, 'program.stage', parameters, STAGE_TIMEOUT_MS)), compiled: of };
    };
    try {
      return await request(compiled);
    } catch (failure) {
      const isTooLarge = failure instanceof Refused && failure.refusal.code === 'capacity_exceeded';
      // The dataplane actor has reported the full map to `MemberDistribution`, so this compilation omits the
      // former members (addresses of pods and nodes).
      const smaller =
        compiled.hasFormer && isTooLarge
          ? await compileFromCache(ports, { ...compiled.inForce, everActivated: true }, { signal })
          : null;
      if (smaller === null) throw failure;
      return request({ ...compiled, ...smaller });
    }
  };
  const unstage = fromPromise<void, { generation: number }>(async ({ input }) => {
    if (!isEnforced) return;
    accepted(await ask(bus, 'program.unstage', input, STAGE_TIMEOUT_MS));
  });
  const flip = fromPromise<{ epoch: number }, { generation: number }>(async ({ input }) =>
    accepted(await ask(bus, 'program.flip', input, FLIP_TIMEOUT_MS)),
  );
  const write = writeChart.provide({
    actions: { publish },
    actors: {
      prepare: fromPromise<Awaited<ReturnType<typeof prepareWrite>>, { write: PolicyWrite }>(
        async ({ input: { write }, signal }) => {
          // Other nodes may have changed the stored policies in the meantime, so the refusal must be
          // confirmed. For an accepted write, the commit detects such a change.
          const confirm = async (): Promise<void> => {
            if (!write.dryRun) await cluster?.confirmWriteLock();
          };
          try {
            const prepared = await prepareWrite(ports, write, signal).catch(async (failure: unknown) => {
              await confirm();
              throw failure;
            });
            if (prepared.kind === 'refused') await confirm();
            return prepared;
          } catch (failure) {
            throw storeRefused(failure);
          }
        },
      ),
      stage: fromPromise<Staged, StageInput>(async ({ input, signal }) => {
        const { compiled } = input;
        const [staged, rehearsed] = await Promise.all([
          isEnforced ? stage(compiled, signal) : { compiled, lines: 0, proof: null },
          rehearse(input),
        ]);
        return { compiled: staged.compiled, lines: staged.lines, proof: staged.proof, rehearsed };
      }),
      unstage,
      commit: fromPromise<number | null, { change: PolicyChange }>(async ({ input }) => {
        await ports.policies.commit(input.change).catch((failure: unknown) => {
          throw storeRefused(failure);
        });
        return cluster === null ? null : Number(cluster.headRevision);
      }),
      flip,
    },
  });
  const follow = followChart.provide({
    actions: {
      vote: (_, { vote }) => {
        if (vote !== null) cluster?.vote(vote.proposal, vote.staged, vote.refusal);
      },
    },
    actors: {
      prepare: fromPromise<CompiledStoredPolicy, { proposal: PolicyProposal | null }>(
        async ({ input: { proposal }, signal }) => {
          if (proposal === null || cluster === null) return compileActive(ports, signal);
          const { record, generation, group } = proposal;
          if (record !== null && group !== undefined) {
            const text = await cluster.bodyOf(proposal, group);
            const write = { record, generation, group: group.id, body: text.length === 0 ? null : text };
            const compiled = await compileProposedGroup(ports, write, signal);
            if (compiled !== null) return compiled;
          }
          const stored = record === null ? null : { record, body: await cluster.bodyOf(proposal) };
          const everActivated = stored !== null || (await ports.policies.everActivated());
          const memberWaitMs = PROPOSAL_MEMBER_WAIT_MS;
          return compileStored(ports, { stored, generation, everActivated }, { signal, memberWaitMs });
        },
      ),
      stage: fromPromise<CompiledStoredPolicy, CompiledStoredPolicy>(
        async ({ input, signal }) => (await stage(input, signal)).compiled,
      ),
      unstage,
      flip,
    },
  });
  return policyChart.provide({
    actions: { publish, releaseWriteLock: () => cluster?.releaseWriteLock() },
    actors: {
      write,
      follow,
      restore: fromPromise(async ({ signal }) => {
        await ports.beforeRestore?.();
        return compileActive(ports, signal).catch((failure: unknown) => {
          ports.restoreFailed?.(failure);
          throw failure;
        });
      }),
      takeWriteLock: fromPromise<void>(async ({ signal }) => {
        await configuredBy('cluster', cluster)
          .takeWriteLock(signal)
          .catch((failure: unknown) => {
            throw storeRefused(failure);
          });
      }),
    },
  });
}

const REFUSALS: Readonly<Partial<Record<StoreErrorCode, RefusalCode>>> = {
  revision_conflict: 'write_conflict',
  generation_regressed: 'write_conflict',
  store_full: 'store_full',
  outcome_unknown: 'outcome_unknown',
};

function storeRefused(failure: unknown): unknown {
  if (!(failure instanceof StoreError)) return failure;
  return new Refused(refusal(REFUSALS[failure.code] ?? 'store_unavailable', failure.message));
}
