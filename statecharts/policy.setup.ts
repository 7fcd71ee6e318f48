import { and, assign, fromPromise, not, or, raise, sendTo, setup, stateIn } from 'xstate';
import type { Fact, Message, PolicyProposal, RequestMessage } from '#bus/bus-messages.js';
import { backoffMs } from '#contracts/backoff.js';
import type { PolicyOutcome, PolicyWrite } from '#contracts/policy/policy-write.js';
import { notProvided } from './failure.js';
import { type CompiledStoredPolicy, type FollowEvent, type FollowOutput, followChart } from './follow.chart.js';
import { readinessTypes, type Troubles } from './readiness.js';
import { type PolicyInForce, type WriteExpired, type WriteOutput, writeChart } from './write.chart.js';

export type PolicyInput = {
  /** Whether the configuration has a dataplane section, so that the dataplane enforces the policy. */
  readonly enforced: boolean;
  /**
   * Maximum time in milliseconds from the arrival of a write to the start of its commit. A write that takes
   * longer is refused.
   */
  readonly activationTimeoutMs: number;
  /** Whether the node is in a cluster, whose nodes write one after the other and follow all commits. */
  readonly shared: boolean;
};

/** A write in the queue. `repeated`: whether it lost a race against another node, and is prepared again. */
export type Waiting = { readonly id: string; readonly write: PolicyWrite; readonly repeated?: boolean };

export type PolicyContext = PolicyInput & {
  readonly inForce: PolicyInForce | null;
  readonly epoch: number | null;
  readonly everActivated: boolean;
  /**
   * The stored policy that must be put in force: after the start of the process, and after a loss of the
   * datapath.
   */
  readonly restored: CompiledStoredPolicy | null;
  readonly queue: readonly Waiting[];
  readonly current: Waiting | null;
  /** Whether the time limit for the activation of the current policy write has passed. */
  readonly expired: boolean;
  /**
   * The generation (activation number) and the answer of the current write if the write is stored but could
   * not be put in force; otherwise null.
   */
  readonly unflipped: { readonly generation: number; readonly outcome: PolicyOutcome } | null;
  /** The newest generation that the cluster has committed; 0 on a single node. */
  readonly committed: number;
  /** The committed generation that this node could not put in force; 0 if there is none. */
  readonly unfollowed: number;
  /** The policy write of another node that waits until this node stages and proves it (rehearsal). */
  readonly proposal: PolicyProposal | null;
  /** The policy write of another node that this node now stages and proves (rehearsal). */
  readonly rehearsed: PolicyProposal | null;
  /** Whether this node holds the write lock of the cluster. */
  readonly hasWriteLock: boolean;
  readonly draining: boolean;
  /** The reason why the dataplane is lost; null while the dataplane enforces or still starts. */
  readonly dataplaneLost: string | null;
  readonly attempts: number;
  /** Whether Kubernetes selectors now select other addresses, so that the policy must be compiled again. */
  readonly isStale: boolean;
  /** Whether the policy in force is compiled again, because its selectors select other addresses. */
  readonly isRefresh: boolean;
  readonly refreshAttempts: number;
  readonly trouble: Troubles;
  readonly notices: Troubles;
};

type PolicyEvent =
  | RequestMessage<'policy.write'>
  | Extract<
      Fact,
      {
        type:
          | 'dataplane.attached'
          | 'dataplane.enforcing'
          | 'dataplane.lost'
          | 'program.rejected'
          | 'node.draining'
          | 'policy.committed'
          | 'policy.proposed'
          | 'policy.proposal_ended'
          | 'membership.changed';
      }
    >
  /** This chart raises `deadline.passed`, `policy.settled` and `restore.needed` for itself. */
  | { readonly type: 'deadline.passed'; readonly id: string }
  | { readonly type: 'policy.settled' }
  | { readonly type: 'restore.needed' };

/** The name of the readiness check of the policy chart. */
export const READY = 'policy_ready';

/** The changes of the context after a write or another node put a policy in force. */
const adopted = ({ inForce, epoch }: Pick<PolicyContext, 'inForce' | 'epoch'>) => ({
  inForce,
  epoch,
  restored: null,
  attempts: 0,
  refreshAttempts: 0,
  trouble: {},
  notices: {},
});

/** The types, actors, actions, guards and delays of the policy chart. */
export const policySetup = setup({
  types: readinessTypes<PolicyContext, PolicyInput, PolicyEvent>(),
  actors: {
    /** Reads the active policy record from the store and compiles it. */
    restore: fromPromise<CompiledStoredPolicy>(notProvided('restore')),
    write: writeChart,
    /** Puts a policy of another node in force. */
    follow: followChart,
    /** Waits until this node holds the write lock of the cluster. The abort signal ends the wait. */
    takeWriteLock: fromPromise<void>(notProvided('takeWriteLock')),
  },
  actions: {
    releaseWriteLock: () => {},
    publish: (_, _params: { message: Message | null }) => {},
    noteRestored: assign((_, { output }: { output: CompiledStoredPolicy }) => ({
      restored: output,
      everActivated: output.everActivated,
    })),
    adoptRestored: assign(({ context }, { epoch }: { epoch: number | null }) => ({
      inForce: context.restored?.inForce ?? null,
      restored: null,
      epoch,
      attempts: 0,
      trouble: {},
    })),
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { [READY]: params.trouble } })),
    noteLost: assign((_, { reason }: { reason: string }) => ({ dataplaneLost: reason })),
    noteRegained: assign({ dataplaneLost: null }),
    noteDraining: assign({ draining: true }),

    enqueue: assign(({ context }, { id, write }: Waiting) => ({ queue: [...context.queue, { id, write }] })),
    startDeadline: raise((_, { id }: { id: string }) => ({ type: 'deadline.passed' as const, id }), {
      delay: 'activationTimeout',
    }),
    takeNext: assign(({ context }) => ({
      current: context.queue[0] ?? null,
      expired: false,
      queue: context.queue.slice(1),
    })),
    noteExpired: assign({ expired: true }),
    repeatCurrent: assign(({ context: { current, queue } }) =>
      current === null ? {} : { queue: [{ ...current, repeated: true }, ...queue] },
    ),
    dropFirst: assign(({ context }) => ({ queue: context.queue.slice(1) })),
    dropQueued: assign(({ context }, params: { id: string }) => ({
      queue: context.queue.filter(({ id }) => id !== params.id),
    })),
    tellWrite: sendTo('write', (_, params: WriteExpired) => params),
    adoptWrite: assign(({ context }, { output }: { output: WriteOutput }) =>
      output.kind !== 'activated'
        ? {}
        : { ...adopted(output), everActivated: context.everActivated || output.inForce.record !== null },
    ),
    noteUnflipped: assign((_, { output }: { output: WriteOutput }) => ({
      unflipped:
        output.kind === 'unflipped' ? { generation: output.inForce.generation, outcome: output.outcome } : null,
    })),
    endWrite: assign({ current: null, unflipped: null }),
    noteWriteLock: assign({ hasWriteLock: true }),
    forgetWriteLock: assign(({ context }) => ({
      hasWriteLock: context.hasWriteLock && context.current?.write.dryRun === true,
    })),
    noteCommitted: assign(({ context }, { generation }: { generation: number }) => ({
      committed: Math.max(context.committed, generation),
    })),
    noteProposal: assign((_, { proposal }: { proposal: PolicyProposal }) => ({ proposal })),
    forgetProposal: assign({ proposal: null }),
    takeProposal: assign(({ context }) => ({ proposal: null, rehearsed: context.proposal })),
    endFollowing: assign({ rehearsed: null, isRefresh: false }),
    tellFollow: sendTo('follow', (_, params: FollowEvent) => params),
    adoptFollowed: assign(({ context }, { output }: { output: FollowOutput }) =>
      output.kind !== 'activated'
        ? {}
        : { ...adopted(output), everActivated: context.everActivated || output.everActivated },
    ),
    noteStale: assign({ isStale: true }),
    beginRefresh: assign({ isStale: false, isRefresh: true }),
    noteUnfollowed: assign(({ context }) => ({ unfollowed: context.committed })),
    noteRefreshFailure: assign(({ context }, { reason }: { reason: string }) => ({
      refreshAttempts: context.refreshAttempts + 1,
      notices: { [READY]: `warning: the policy could not be compiled for changes of its selectors: ${reason}` },
    })),
    demandRefresh: raise({ type: 'membership.changed' }, { delay: 'refreshBackoff' }),
    announceSettled: raise({ type: 'policy.settled' }),
    demandRestore: raise({ type: 'restore.needed' }),
  },
  guards: {
    isEnforced: ({ context }) => context.enforced,
    isActive: ({ context }) => context.inForce?.record != null,
    hasUnresolvedSelectors: ({ context }) => (context.inForce?.unresolved.length ?? 0) > 0,
    mustRefresh: and([
      ({ context }) => context.isStale && (context.inForce?.selectors.length ?? 0) > 0,
      not(stateIn({ activation: 'restoring' })),
      not(stateIn({ activation: 'unenforced' })),
    ]),
    wasEverActivated: ({ context }) => context.everActivated,
    isRestored: ({ context }, params: { generation: number }) =>
      context.restored?.inForce.generation === params.generation,
    dataplaneIsLost: ({ context }) => context.dataplaneLost !== null,
    isDraining: ({ context }) => context.draining,
    hasQueued: ({ context }) => context.queue.length > 0,
    mayBegin: and(['hasQueued', not(stateIn({ activation: 'restoring' })), or(['needsNoWriteLock', 'hasWriteLock'])]),
    /** Whether the next write needs no write lock: it stores nothing, or the node is not in a cluster. */
    needsNoWriteLock: ({ context }) => !context.shared || context.queue[0]?.write.dryRun === true,
    hasWriteLock: ({ context }) => context.hasWriteLock,
    hasNoWriteLock: ({ context }) => !context.hasWriteLock,
    needsWriteLock: ({ context }) => context.shared && nextStored(context) !== undefined,
    hasNoStoredWrite: ({ context }) =>
      nextStored(context) === undefined && (context.current === null || context.current.write.dryRun),
    isBehind: and([
      ({ context }) =>
        context.inForce !== null &&
        context.committed > context.inForce.generation &&
        context.committed !== context.unfollowed,
      not(stateIn({ activation: 'restoring' })),
    ]),
    mayRehearse: and([
      ({ context }) => context.proposal !== null && context.inForce !== null,
      not(stateIn({ activation: 'restoring' })),
    ]),
    isProposed: ({ context }, params: { id: string }) => context.proposal?.id === params.id,
    isRehearsed: ({ context }, params: { id: string }) => context.rehearsed?.id === params.id,
    isRehearsedGeneration: ({ context }, params: { generation: number }) =>
      context.rehearsed?.generation === params.generation,
    hasFollowed: (_, { output }: { output: FollowOutput }) => output.kind === 'activated',
    hasFailed: (_, { output }: { output: FollowOutput }) => output.kind === 'failed',
    /**
     * Whether the policy in force could not be compiled for changed addresses of its selectors, so that the
     * former program stays in force.
     */
    mustRetry: ({ context }, { output }: { output: FollowOutput }) => context.isRefresh && output.kind === 'failed',
    mustRefuseQueued: and(['isDraining', 'hasQueued']),
    isCurrent: ({ context }, params: { id: string }) => context.current?.id === params.id,
    isQueued: ({ context }, params: { id: string }) => context.queue.some(({ id }) => id === params.id),
    hasActivated: (_, { output }: { output: WriteOutput }) => output.kind === 'activated',
    hasLostRace: (_, { output }: { output: WriteOutput }) => output.kind === 'lost_race',
    mayRepeat: ({ context }, { output }: { output: WriteOutput }) => output.kind === 'lost_race' && !context.expired,
    isUnflipped: (_, { output }: { output: WriteOutput }) => output.kind === 'unflipped',
    isRecovered: and([
      ({ context }) => context.inForce !== null && context.inForce.generation === context.unflipped?.generation,
      not(stateIn({ activation: 'restoring' })),
      not(stateIn({ activation: 'unenforced' })),
    ]),
  },
  delays: {
    activationTimeout: ({ context }) => context.activationTimeoutMs,
    restoreBackoff: ({ context }) => backoffMs(context.attempts - 1, 500, 30_000),
    refreshBackoff: ({ context }) => backoffMs(context.refreshAttempts - 1, 500, 30_000),
    /**
     * If the policy cannot be put in force after the commit, the answer to the write waits this many
     * milliseconds until the dataplane has done so.
     */
    recoveryTimeout: 10_000,
  },
});

/** Returns the first queued write that is not a dry run. */
export const nextStored = ({ queue }: PolicyContext): Waiting | undefined => queue.find(({ write }) => !write.dryRun);
