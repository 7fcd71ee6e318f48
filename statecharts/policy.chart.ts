import { and, assign, fromPromise, not, raise, sendTo, setup, stateIn } from 'xstate';
import type { Fact, Message, RequestMessage } from '#bus/bus-messages.js';
import type { PolicyOutcome, PolicyWrite, Refusal } from '#bus/policy-requests.js';
import type { Warning } from '#contracts/policy-problem.js';
import type { Program } from '#contracts/program.js';
import type { ProofSample } from '#contracts/proof-types.js';
import { backoffMs, notProvided, sentenceOf } from './failure.js';
import type { ReadinessMeta, ReadinessTag, Troubles } from './readiness.js';
import { refusal, refusalOf } from './refusal.js';
import { type PolicyInForce, type WriteExpired, type WriteInput, type WriteOutput, writeChart } from './write.chart.js';

/**
 * The stored policy in compiled form. It must be put in force after the start of the process and after a
 * loss of the datapath.
 */
export type Replay = {
  readonly inForce: PolicyInForce;
  readonly program: Program;
  readonly sample: ProofSample;
  readonly everActivated: boolean;
};

export type PolicyInput = {
  /** Whether the configuration has a dataplane section, so that the dataplane enforces the policy. */
  readonly enforced: boolean;
  /**
   * Maximum time in milliseconds from the arrival of a write to the start of its commit. A write that takes
   * longer is refused.
   */
  readonly activationTimeoutMs: number;
};

type Waiting = { readonly id: string; readonly write: PolicyWrite };

export type PolicyContext = PolicyInput & {
  readonly inForce: PolicyInForce | null;
  readonly epoch: number | null;
  readonly everActivated: boolean;
  readonly replay: Replay | null;
  readonly queue: readonly Waiting[];
  readonly current: Waiting | null;
  /**
   * Generation and answer of the current write, if the write is stored but its flip has failed; otherwise
   * null.
   */
  readonly unflipped: { readonly generation: number; readonly outcome: PolicyOutcome } | null;
  readonly draining: boolean;
  /** The reason why the dataplane is lost; null while the dataplane enforces or still starts. */
  readonly dataplaneLost: string | null;
  readonly attempts: number;
  readonly trouble: Troubles;
};

type PolicyEvent =
  | RequestMessage<'policy.write'>
  | Extract<
      Fact,
      { type: 'dataplane.attached' | 'dataplane.enforcing' | 'dataplane.lost' | 'program.rejected' | 'node.draining' }
    >
  /** This chart raises `deadline.passed`, `policy.settled` and `replay.needed` for itself. */
  | { readonly type: 'deadline.passed'; readonly id: string }
  | { readonly type: 'policy.settled' }
  | { readonly type: 'replay.needed' };

const part = 'policy_ready';

const policy = setup({
  types: {
    context: {} as PolicyContext,
    input: {} as PolicyInput,
    events: {} as PolicyEvent,
    tags: {} as ReadinessTag,
    meta: {} as ReadinessMeta,
  },
  actors: {
    /** Reads the active policy record from the store and compiles it. */
    replay: fromPromise<Replay>(notProvided('replay')),
    write: writeChart,
  },
  actions: {
    publish: (_, _params: { message: Message | null }) => {},
    noteReplay: assign((_, { output }: { output: Replay }) => ({
      replay: output,
      everActivated: output.everActivated,
    })),
    adoptReplay: assign(({ context }, { epoch }: { epoch: number | null }) => ({
      inForce: context.replay?.inForce ?? null,
      replay: null,
      epoch,
      attempts: 0,
      trouble: {},
    })),
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { [part]: params.trouble } })),
    noteLost: assign((_, { reason }: { reason: string }) => ({ dataplaneLost: reason })),
    noteRegained: assign({ dataplaneLost: null }),
    noteDraining: assign({ draining: true }),

    enqueue: assign(({ context }, { id, write }: Waiting) => ({ queue: [...context.queue, { id, write }] })),
    startDeadline: raise((_, { id }: { id: string }) => ({ type: 'deadline.passed' as const, id }), {
      delay: 'activationTimeout',
    }),
    takeNext: assign(({ context }) => ({ current: context.queue[0] ?? null, queue: context.queue.slice(1) })),
    dropFirst: assign(({ context }) => ({ queue: context.queue.slice(1) })),
    dropQueued: assign(({ context }, params: { id: string }) => ({
      queue: context.queue.filter(({ id }) => id !== params.id),
    })),
    tellWrite: sendTo('write', (_, params: WriteExpired) => params),
    adoptWrite: assign(({ context }, { output }: { output: WriteOutput }) =>
      output.kind !== 'activated'
        ? {}
        : {
            inForce: output.inForce,
            epoch: output.epoch,
            everActivated: context.everActivated || output.inForce.record !== null,
            replay: null,
            attempts: 0,
            trouble: {},
          },
    ),
    noteUnflipped: assign((_, { output }: { output: WriteOutput }) => ({
      unflipped:
        output.kind === 'unflipped' ? { generation: output.inForce.generation, outcome: output.outcome } : null,
    })),
    endWrite: assign({ current: null, unflipped: null }),
    announceSettled: raise({ type: 'policy.settled' }),
    demandReplay: raise({ type: 'replay.needed' }),
  },
  guards: {
    isEnforced: ({ context }) => context.enforced,
    isActive: ({ context }) => context.inForce?.record != null,
    // This version resolves no Kubernetes selectors. So every source group that uses an integration has
    // unresolved selectors.
    hasUnresolvedSelectors: ({ context }) => context.inForce?.record != null && context.inForce.integrations.length > 0,
    wasEverActivated: ({ context }) => context.everActivated,
    isReplayed: ({ context }, params: { generation: number }) =>
      context.replay?.inForce.generation === params.generation,
    dataplaneIsLost: ({ context }) => context.dataplaneLost !== null,
    isDraining: ({ context }) => context.draining,
    hasQueued: ({ context }) => context.queue.length > 0,
    mayBegin: and(['hasQueued', not(stateIn({ standing: 'replaying' }))]),
    mustRefuseQueued: and(['isDraining', 'hasQueued']),
    isCurrent: ({ context }, params: { id: string }) => context.current?.id === params.id,
    isQueued: ({ context }, params: { id: string }) => context.queue.some(({ id }) => id === params.id),
    hasActivated: (_, { output }: { output: WriteOutput }) => output.kind === 'activated',
    isUnflipped: (_, { output }: { output: WriteOutput }) => output.kind === 'unflipped',
    isRecovered: and([
      ({ context }) => context.inForce !== null && context.inForce.generation === context.unflipped?.generation,
      not(stateIn({ standing: 'replaying' })),
      not(stateIn({ standing: 'unenforced' })),
    ]),
  },
  delays: {
    activationTimeout: ({ context }) => context.activationTimeoutMs,
    replayBackoff: ({ context }) => backoffMs(context.attempts - 1, 500, 30_000),
    /**
     * If the flip fails after the commit, the answer to the write waits this many milliseconds for the
     * dataplane to put the policy in force.
     */
    recoveryPatience: 10_000,
  },
});

type InContext = { readonly context: PolicyContext };
type Published = { readonly message: Message | null };

const DRAINING = refusal('draining', 'the node is shutting down and accepts no writes');
const NOT_YET: Warning = {
  pointer: '',
  code: 'not_enforced',
  message:
    'The policy is stored, but the dataplane failed meanwhile; the policy is enforced as soon as the dataplane runs again.',
};

const answered = (waiting: Waiting | null | undefined, outcome: PolicyOutcome): Published => ({
  message: waiting == null ? null : { type: 'policy.write_answered', id: waiting.id, outcome },
});
const expired = ({ activationTimeoutMs, trouble }: PolicyContext): Refusal =>
  refusal(
    'activation_timeout',
    `the policy could not be activated within ${activationTimeoutMs} ms; nothing was changed${
      trouble[part] === undefined ? '' : ` (${trouble[part]})`
    }`,
  );
const recovered = ({ context: { current, unflipped } }: InContext): Published =>
  unflipped === null ? { message: null } : answered(current, unflipped.outcome);
const notRecovered = ({ context: { current, unflipped } }: InContext): Published => {
  if (unflipped === null) return { message: null };
  const { outcome } = unflipped;
  return answered(current, 'warnings' in outcome ? { ...outcome, warnings: [...outcome.warnings, NOT_YET] } : outcome);
};
const desired = ({ context: { replay } }: InContext): Published => ({
  message:
    replay === null
      ? null
      : {
          type: 'program.desired',
          program: replay.program,
          sample: replay.sample,
          generation: replay.inForce.generation,
        },
});
const activated = ({ context: { inForce, epoch } }: InContext): Published => {
  if (inForce === null) return { message: null };
  const { record, generation, needs, lookups, inspection } = inForce;
  return { message: { type: 'policy.activated', record, generation, epoch, needs, lookups, inspection } };
};

/**
 * The transitions at the end of a replay: the dataplane has put the replayed policy in force, or has
 * rejected it.
 */
const replayEnding = policy.createStateConfig({
  on: {
    'dataplane.enforcing': {
      guard: { type: 'isReplayed', params: ({ event }) => event },
      target: 'settling',
      actions: ['noteRegained', { type: 'adoptReplay', params: ({ event }) => event }],
    },
    'program.rejected': {
      guard: { type: 'isReplayed', params: ({ event }) => event },
      target: 'backing_off',
      actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: event.refusal.detail }) },
    },
  },
});

export const policyChart = policy.createMachine({
  id: 'policy',
  type: 'parallel',
  context: ({ input }) => ({
    ...input,
    inForce: null,
    epoch: null,
    everActivated: false,
    replay: null,
    queue: [],
    current: null,
    unflipped: null,
    draining: false,
    dataplaneLost: null,
    attempts: 0,
    trouble: {},
  }),
  states: {
    standing: {
      initial: 'replaying',
      on: {
        'policy.settled': { target: '.settling' },
        'replay.needed': { target: '.replaying' },
        'dataplane.attached': { target: '.replaying', actions: 'noteRegained' },
        'dataplane.enforcing': { actions: 'noteRegained' },
        'dataplane.lost': { actions: { type: 'noteLost', params: ({ event }) => event } },
      },
      states: {
        replaying: {
          tags: `${part}:starting`,
          meta: { part, detail: 'activating the stored policy' },
          initial: 'reading',
          ...replayEnding,
          states: {
            reading: {
              on: { 'dataplane.attached': { actions: 'noteRegained' } },
              invoke: {
                id: 'replay',
                src: 'replay',
                onDone: [
                  {
                    guard: 'isEnforced',
                    target: 'awaiting',
                    actions: { type: 'noteReplay', params: ({ event }) => event },
                  },
                  {
                    target: '#policy.standing.settling',
                    actions: [
                      { type: 'noteReplay', params: ({ event }) => event },
                      { type: 'adoptReplay', params: { epoch: null } },
                    ],
                  },
                ],
                onError: {
                  target: '#policy.standing.backing_off',
                  actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
                },
              },
            },
            awaiting: {
              entry: { type: 'publish', params: desired },
              always: {
                guard: 'dataplaneIsLost',
                target: '#policy.standing.unenforced',
                actions: {
                  type: 'noteTrouble',
                  params: ({ context }) => ({ trouble: context.dataplaneLost ?? '' }),
                },
              },
              on: { 'dataplane.attached': { target: 'reading' } },
            },
          },
        },
        unenforced: {
          tags: `${part}:failed`,
          meta: { part, detail: 'the stored policy waits for the dataplane' },
          ...replayEnding,
        },
        backing_off: {
          tags: `${part}:failed`,
          meta: { part, detail: 'the stored policy could not be activated; the node tries again soon' },
          entry: 'countAttempt',
          after: { replayBackoff: 'replaying' },
        },
        settling: {
          entry: { type: 'publish', params: activated },
          always: [
            {
              guard: 'hasUnresolvedSelectors',
              target: 'unresolved',
              actions: {
                type: 'noteTrouble',
                params: ({ context }) => ({ trouble: `integration ${context.inForce?.integrations.join(', ')}` }),
              },
            },
            { guard: 'isActive', target: 'active' },
            { guard: 'wasEverActivated', target: 'none_active' },
            { target: 'never_activated' },
          ],
        },
        active: {
          tags: `${part}:ready`,
          meta: { part, detail: 'a policy is active' },
        },
        unresolved: {
          tags: `${part}:failed`,
          meta: {
            part,
            detail:
              'the active policy has selectors that were never resolved: their deny rules match every source, their allow rules match none',
          },
        },
        none_active: {
          tags: `${part}:ready`,
          meta: { part, detail: 'no policy is active; policy.fallback decides' },
        },
        never_activated: {
          tags: `${part}:failed`,
          meta: { part, detail: 'no policy was ever activated; policy.fallback decides' },
        },
      },
    },
    writing: {
      initial: 'idle',
      on: {
        'policy.write_requested': {
          actions: [
            { type: 'startDeadline', params: ({ event }) => event },
            { type: 'enqueue', params: ({ event }) => event },
          ],
        },
        'deadline.passed': {
          guard: { type: 'isQueued', params: ({ event }) => event },
          actions: [
            {
              type: 'publish',
              params: ({ context, event }) =>
                answered(
                  context.queue.find(({ id }) => id === event.id),
                  expired(context),
                ),
            },
            { type: 'dropQueued', params: ({ event }) => event },
          ],
        },
        'node.draining': { actions: 'noteDraining' },
      },
      states: {
        idle: {
          entry: 'endWrite',
          always: [
            {
              guard: 'mustRefuseQueued',
              target: 'idle',
              reenter: true,
              actions: [
                { type: 'publish', params: ({ context }) => answered(context.queue[0], DRAINING) },
                'dropFirst',
              ],
            },
            { guard: 'isDraining', target: 'drained' },
            { guard: 'mayBegin', target: 'writing', actions: 'takeNext' },
          ],
        },
        writing: {
          invoke: {
            id: 'write',
            src: 'write',
            input: ({ context }): WriteInput => ({ ...present(context.current), enforced: context.enforced }),
            onDone: [
              {
                guard: { type: 'hasActivated', params: ({ event }) => event },
                target: 'idle',
                actions: [{ type: 'adoptWrite', params: ({ event }) => event }, 'announceSettled'],
              },
              {
                guard: { type: 'isUnflipped', params: ({ event }) => event },
                target: 'recovering',
                actions: [{ type: 'noteUnflipped', params: ({ event }) => event }, 'demandReplay'],
              },
              { target: 'idle' },
            ],
            onError: {
              target: 'idle',
              actions: {
                type: 'publish',
                params: ({ context, event }) =>
                  answered(context.current, refusalOf(event.error, 'feature_unavailable')),
              },
            },
          },
          on: {
            'deadline.passed': {
              guard: { type: 'isCurrent', params: ({ event }) => event },
              actions: {
                type: 'tellWrite',
                params: ({ context }) => ({ type: 'write.expired', refusal: expired(context) }),
              },
            },
          },
        },
        recovering: {
          always: { guard: 'isRecovered', target: 'idle', actions: { type: 'publish', params: recovered } },
          after: {
            recoveryPatience: { target: 'idle', actions: { type: 'publish', params: notRecovered } },
          },
        },
        drained: {
          entry: { type: 'publish', params: { message: { type: 'policy.drained' } } },
          on: {
            'policy.write_requested': {
              actions: { type: 'publish', params: ({ event }) => answered(event, DRAINING) },
            },
          },
        },
      },
    },
  },
});

function present<T>(value: T | null): T {
  if (value === null) throw new Error('a write begins that is not there');
  return value;
}
