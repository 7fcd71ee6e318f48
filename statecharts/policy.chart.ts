import { and, assign, fromPromise, not, raise, setup, stateIn } from 'xstate';
import type { Fact, Message, Needs, RequestMessage } from '#bus/bus-messages.js';
import type {
  PolicyChecked,
  PolicyDeleted,
  PolicyOutcome,
  PolicyWrite,
  PolicyWritten,
  Refusal,
} from '#bus/policy-requests.js';
import type { InspectionImage } from '#contracts/inspection-image.js';
import type { Lookups } from '#contracts/lookups.js';
import type { Warning } from '#contracts/policy-problem.js';
import type { PolicyPut, PolicyRecord } from '#contracts/policy-record.js';
import type { Program } from '#contracts/program.js';
import type { Proof, ProofSample, Sampling } from '#contracts/proof-types.js';
import { backoffMs, notProvided, sentenceOf } from './failure.js';
import type { ReadinessMeta, ReadinessTag, Troubles } from './readiness.js';
import { refusal, refusalOf } from './refusal.js';

/** What decides about packets now, or will after a flip. */
export type PolicyInForce = {
  /** Null: none is active, and `policy.fallback` decides. */
  readonly record: PolicyRecord | null;
  readonly generation: number;
  readonly needs: Needs;
  readonly lookups: Lookups;
  readonly inspection: InspectionImage;
  /** Names of the integrations that its selectors use. */
  readonly integrations: readonly string[];
};

/** What the store says must be in force. */
export type Replay = {
  readonly inForce: PolicyInForce;
  readonly program: Program;
  readonly sample: ProofSample;
  readonly everActivated: boolean;
};

/** One atomic batch for the store. */
export type PolicyChange = {
  readonly put?: PolicyPut;
  readonly activate?: string;
  readonly deactivate?: string;
  readonly remove?: string;
  readonly generation: number;
};

/** A write that may go on: what would be stored, what would be in force, and what is answered in the end. */
export type Judged = {
  readonly kind: 'judged';
  readonly change: PolicyChange;
  /** Null where the write does not touch what is in force. */
  readonly activation: {
    readonly program: Program;
    readonly sample: Sampling;
    readonly inForce: PolicyInForce;
  } | null;
  readonly outcome: PolicyWritten | PolicyDeleted | PolicyChecked;
};

export type PolicyInput = {
  /** Whether there is a dataplane that enforces. */
  readonly enforced: boolean;
  /** From the arrival of a write to its commit. */
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
  readonly judged: Judged | null;
  readonly lines: number;
  readonly proof: Proof | null;
  readonly draining: boolean;
  /** Why the dataplane does not enforce at the moment; null where it does or may soon. */
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
  /** Raised by the chart itself. */
  | { readonly type: 'write.expired'; readonly id: string }
  | { readonly type: 'policy.settled' }
  | { readonly type: 'replay.needed' };

const policy = setup({
  types: {
    context: {} as PolicyContext,
    input: {} as PolicyInput,
    events: {} as PolicyEvent,
    tags: {} as ReadinessTag,
    meta: {} as ReadinessMeta,
  },
  actors: {
    /** Reads the active record and compiles it. */
    replay: fromPromise<Replay>(notProvided('replay')),
    /** Reads, validates and compiles a write and decides about it; stores and stages nothing. */
    judge: fromPromise<Judged | Refusal, { write: PolicyWrite }>(notProvided('judge')),
    /** Fills the idle slot, and proves it. */
    stage: fromPromise<{ lines: number; proof: Proof }, { program: Program; sample: Sampling; generation: number }>(
      notProvided('stage'),
    ),
    unstage: fromPromise<void, { generation: number }>(notProvided('unstage')),
    commit: fromPromise<void, { change: PolicyChange }>(notProvided('commit')),
    flip: fromPromise<{ epoch: number }, { generation: number }>(notProvided('flip')),
  },
  actions: {
    publish: (_, _params: { message: Message | null }) => {},
    rememberReplay: assign((_, params: { replay: Replay }) => ({
      replay: params.replay,
      everActivated: params.replay.everActivated,
    })),
    adoptReplay: assign(({ context }, params: { epoch: number | null }) => ({
      inForce: context.replay?.inForce ?? null,
      replay: null,
      epoch: params.epoch,
      attempts: 0,
      trouble: {},
    })),
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { policy_ready: params.trouble } })),

    enqueue: assign(({ context }, params: Waiting) => ({
      queue: [...context.queue, { id: params.id, write: params.write }],
    })),
    startDeadline: raise(
      ({ event }) => ({ type: 'write.expired', id: event.type === 'policy.write_requested' ? event.id : '' }),
      { delay: 'activationTimeout' },
    ),
    takeNext: assign(({ context }) => ({
      current: context.queue[0] ?? null,
      queue: context.queue.slice(1),
      judged: null,
      lines: 0,
      proof: null,
    })),
    dropFirst: assign(({ context }) => ({ queue: context.queue.slice(1) })),
    dropQueued: assign(({ context }, params: { id: string }) => ({
      queue: context.queue.filter(({ id }) => id !== params.id),
    })),
    rememberJudged: assign((_, params: { judged: Judged | Refusal }) => ({
      judged: params.judged.kind === 'judged' ? params.judged : null,
    })),
    rememberStaged: assign((_, params: { lines: number; proof: Proof }) => ({
      lines: params.lines,
      proof: params.proof,
    })),
    adoptWrite: assign(({ context }, params: { epoch: number | null }) => ({
      inForce: context.judged?.activation?.inForce ?? context.inForce,
      epoch: params.epoch,
      everActivated: context.everActivated || context.judged?.activation?.inForce.record != null,
      replay: null,
      attempts: 0,
      trouble: {},
    })),
    endWrite: assign({ current: null, judged: null }),
    announceSettled: raise({ type: 'policy.settled' }),
    demandReplay: raise({ type: 'replay.needed' }),
    noteLost: assign((_, params: { reason: string }) => ({ dataplaneLost: params.reason })),
    noteRegained: assign({ dataplaneLost: null }),
    noteLossAsTrouble: assign(({ context }) => ({ trouble: { policy_ready: context.dataplaneLost ?? '' } })),
    noteDraining: assign({ draining: true }),
  },
  guards: {
    isEnforced: ({ context }) => context.enforced,
    isActive: ({ context }) => context.inForce?.record != null,
    // No selector resolves yet: what uses an integration is unresolved.
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
    isRefused: (_, params: { judged: Judged | Refusal }) => params.judged.kind === 'refused',
    mustStage: ({ context }, params: { judged: Judged | Refusal }) =>
      context.enforced && params.judged.kind === 'judged' && params.judged.activation !== null,
    isDryRun: ({ context }) => context.current?.write.dryRun === true,
    isStaged: ({ context }) => context.enforced && context.judged !== null && context.judged.activation !== null,
    changesWhatIsInForce: ({ context }) => context.judged !== null && context.judged.activation !== null,
    isRecovered: and([
      ({ context }) => context.inForce !== null && context.inForce.generation === context.judged?.change.generation,
      not(stateIn({ standing: 'replaying' })),
      not(stateIn({ standing: 'unenforced' })),
    ]),
  },
  delays: {
    activationTimeout: ({ context }) => context.activationTimeoutMs,
    replayBackoff: ({ context }) => backoffMs(context.attempts - 1, 500, 30_000),
    /** After a commit whose flip did not come through: how long the answer waits for the dataplane to be restored. */
    recoveryPatience: 10_000,
  },
});

const DRAINING = refusal('draining', 'the node is shutting down and takes no more writes');

const answered = (waiting: Waiting | null | undefined, outcome: PolicyOutcome): { message: Message | null } => ({
  message: waiting == null ? null : { type: 'policy.write_answered', id: waiting.id, outcome },
});
const expired = (context: PolicyContext): Refusal =>
  refusal(
    'activation_timeout',
    `the policy was not in force within ${context.activationTimeoutMs} ms; nothing was changed${
      context.trouble.policy_ready === undefined ? '' : ` (${context.trouble.policy_ready})`
    }`,
  );
const done = (context: PolicyContext, more: readonly Warning[] = []): { message: Message | null } => {
  const outcome = context.judged?.outcome;
  if (outcome === undefined) return { message: null };
  const { current, lines: programLines, proof } = context;
  const warnings = [...outcome.warnings, ...more];
  switch (outcome.kind) {
    case 'checked':
      return answered(current, { ...outcome, warnings, programLines, proof });
    case 'written':
      return answered(current, { ...outcome, warnings, proof });
    case 'deleted':
      return answered(current, { ...outcome, warnings });
  }
};
const NOT_YET: Warning = {
  pointer: '',
  code: 'not_enforced',
  message: 'The policy is stored, but the dataplane was lost meanwhile; it is enforced as soon as that is back.',
};
const activated = (context: PolicyContext): { message: Message | null } => ({
  message:
    context.inForce === null
      ? null
      : {
          type: 'policy.activated',
          record: context.inForce.record,
          generation: context.inForce.generation,
          epoch: context.epoch,
          needs: context.inForce.needs,
          lookups: context.inForce.lookups,
          inspection: context.inForce.inspection,
        },
});

function present<T>(value: T | null | undefined): T {
  if (value == null) throw new Error('a write under way lacks what it was judged to be');
  return value;
}

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
    judged: null,
    lines: 0,
    proof: null,
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
          tags: 'policy_ready:starting',
          meta: { part: 'policy_ready', detail: 'putting the stored policy in force' },
          initial: 'reading',
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
                    actions: { type: 'rememberReplay', params: ({ event }) => ({ replay: event.output }) },
                  },
                  {
                    target: '#policy.standing.settling',
                    actions: [
                      { type: 'rememberReplay', params: ({ event }) => ({ replay: event.output }) },
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
              entry: {
                type: 'publish',
                params: ({ context }) => ({
                  message:
                    context.replay === null
                      ? null
                      : {
                          type: 'program.desired',
                          program: context.replay.program,
                          sample: context.replay.sample,
                          generation: context.replay.inForce.generation,
                        },
                }),
              },
              always: {
                guard: 'dataplaneIsLost',
                target: '#policy.standing.unenforced',
                actions: 'noteLossAsTrouble',
              },
              on: { 'dataplane.attached': { target: 'reading' } },
            },
          },
          on: {
            'dataplane.enforcing': {
              guard: { type: 'isReplayed', params: ({ event }) => ({ generation: event.generation }) },
              target: 'settling',
              actions: ['noteRegained', { type: 'adoptReplay', params: ({ event }) => ({ epoch: event.epoch }) }],
            },
            'program.rejected': {
              guard: { type: 'isReplayed', params: ({ event }) => ({ generation: event.generation }) },
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: event.refusal.detail }) },
            },
          },
        },
        unenforced: {
          tags: 'policy_ready:failed',
          meta: { part: 'policy_ready', detail: 'the stored policy waits for the dataplane' },
          on: {
            'dataplane.enforcing': {
              guard: { type: 'isReplayed', params: ({ event }) => ({ generation: event.generation }) },
              target: 'settling',
              actions: ['noteRegained', { type: 'adoptReplay', params: ({ event }) => ({ epoch: event.epoch }) }],
            },
            'program.rejected': {
              guard: { type: 'isReplayed', params: ({ event }) => ({ generation: event.generation }) },
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: event.refusal.detail }) },
            },
          },
        },
        backing_off: {
          tags: 'policy_ready:failed',
          meta: { part: 'policy_ready', detail: 'the stored policy could not be put in force; tried again soon' },
          entry: 'countAttempt',
          after: { replayBackoff: 'replaying' },
        },
        settling: {
          entry: { type: 'publish', params: ({ context }) => activated(context) },
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
          tags: 'policy_ready:ready',
          meta: { part: 'policy_ready', detail: 'a policy is active' },
        },
        unresolved: {
          tags: 'policy_ready:failed',
          meta: {
            part: 'policy_ready',
            detail:
              'the active policy has selectors that were never resolved: their denies match every source, their allows none',
          },
        },
        none_active: {
          tags: 'policy_ready:ready',
          meta: { part: 'policy_ready', detail: 'no policy is active; the configured fallback decides' },
        },
        never_activated: {
          tags: 'policy_ready:failed',
          meta: { part: 'policy_ready', detail: 'no policy was ever activated; the configured fallback decides' },
        },
      },
    },
    writing: {
      initial: 'idle',
      on: {
        'policy.write_requested': { actions: ['startDeadline', { type: 'enqueue', params: ({ event }) => event }] },
        'write.expired': {
          guard: { type: 'isQueued', params: ({ event }) => ({ id: event.id }) },
          actions: [
            {
              type: 'publish',
              params: ({ context, event }) =>
                answered(
                  context.queue.find(({ id }) => id === event.id),
                  expired(context),
                ),
            },
            { type: 'dropQueued', params: ({ event }) => ({ id: event.id }) },
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
            { guard: 'mayBegin', target: 'judging', actions: 'takeNext' },
          ],
        },
        judging: {
          invoke: {
            id: 'judge',
            src: 'judge',
            input: ({ context }) => ({ write: present(context.current).write }),
            onDone: [
              {
                guard: { type: 'isRefused', params: ({ event }) => ({ judged: event.output }) },
                target: 'idle',
                actions: [
                  {
                    type: 'publish',
                    params: ({ context, event }) =>
                      event.output.kind === 'refused' ? answered(context.current, event.output) : { message: null },
                  },
                ],
              },
              {
                guard: { type: 'mustStage', params: ({ event }) => ({ judged: event.output }) },
                target: 'staging',
                actions: { type: 'rememberJudged', params: ({ event }) => ({ judged: event.output }) },
              },
              {
                guard: 'isDryRun',
                target: 'idle',
                actions: [
                  { type: 'rememberJudged', params: ({ event }) => ({ judged: event.output }) },
                  { type: 'publish', params: ({ context }) => done(context) },
                ],
              },
              {
                target: 'committing',
                actions: { type: 'rememberJudged', params: ({ event }) => ({ judged: event.output }) },
              },
            ],
            onError: {
              target: 'idle',
              actions: [
                {
                  type: 'publish',
                  params: ({ context, event }) =>
                    answered(context.current, refusalOf(event.error, 'feature_unavailable')),
                },
              ],
            },
          },
          on: {
            'write.expired': {
              guard: { type: 'isCurrent', params: ({ event }) => ({ id: event.id }) },
              target: 'idle',
              actions: { type: 'publish', params: ({ context }) => answered(context.current, expired(context)) },
            },
          },
        },
        staging: {
          invoke: {
            id: 'stage',
            src: 'stage',
            input: ({ context }) => ({
              program: present(context.judged?.activation).program,
              sample: present(context.judged?.activation).sample,
              generation: present(context.judged).change.generation,
            }),
            onDone: [
              {
                guard: 'isDryRun',
                target: 'unstaging',
                actions: [
                  { type: 'rememberStaged', params: ({ event }) => event.output },
                  { type: 'publish', params: ({ context }) => done(context) },
                ],
              },
              { target: 'committing', actions: { type: 'rememberStaged', params: ({ event }) => event.output } },
            ],
            onError: {
              target: 'unstaging',
              actions: [
                {
                  type: 'publish',
                  params: ({ context, event }) =>
                    answered(context.current, refusalOf(event.error, 'dataplane_unavailable')),
                },
              ],
            },
          },
          on: {
            'write.expired': {
              guard: { type: 'isCurrent', params: ({ event }) => ({ id: event.id }) },
              target: 'unstaging',
              actions: { type: 'publish', params: ({ context }) => answered(context.current, expired(context)) },
            },
          },
        },
        unstaging: {
          invoke: {
            id: 'unstage',
            src: 'unstage',
            input: ({ context }) => ({ generation: present(context.judged).change.generation }),
            onDone: 'idle',
            onError: 'idle',
          },
        },
        committing: {
          invoke: {
            id: 'commit',
            src: 'commit',
            input: ({ context }) => ({ change: present(context.judged).change }),
            onDone: [
              { guard: 'isStaged', target: 'flipping' },
              {
                guard: 'changesWhatIsInForce',
                target: 'idle',
                actions: [
                  { type: 'adoptWrite', params: { epoch: null } },
                  'announceSettled',
                  { type: 'publish', params: ({ context }) => done(context) },
                ],
              },
              { target: 'idle', actions: { type: 'publish', params: ({ context }) => done(context) } },
            ],
            onError: [
              {
                guard: 'isStaged',
                target: 'unstaging',
                actions: {
                  type: 'publish',
                  params: ({ context, event }) =>
                    answered(context.current, refusalOf(event.error, 'store_unavailable')),
                },
              },
              {
                target: 'idle',
                actions: {
                  type: 'publish',
                  params: ({ context, event }) =>
                    answered(context.current, refusalOf(event.error, 'store_unavailable')),
                },
              },
            ],
          },
        },
        flipping: {
          invoke: {
            id: 'flip',
            src: 'flip',
            input: ({ context }) => ({ generation: present(context.judged).change.generation }),
            onDone: {
              target: 'idle',
              actions: [
                { type: 'adoptWrite', params: ({ event }) => ({ epoch: event.output.epoch }) },
                'announceSettled',
                { type: 'publish', params: ({ context }) => done(context) },
              ],
            },
            onError: { target: 'recovering', actions: 'demandReplay' },
          },
        },
        recovering: {
          always: {
            guard: 'isRecovered',
            target: 'idle',
            actions: { type: 'publish', params: ({ context }) => done(context) },
          },
          after: {
            recoveryPatience: {
              target: 'idle',
              actions: { type: 'publish', params: ({ context }) => done(context, [NOT_YET]) },
            },
          },
        },
        drained: {
          entry: { type: 'publish', params: { message: { type: 'policy.drained' } } },
          on: {
            'policy.write_requested': {
              actions: {
                type: 'publish',
                params: ({ event }) => ({
                  message: { type: 'policy.write_answered', id: event.id, outcome: DRAINING },
                }),
              },
            },
          },
        },
      },
    },
  },
});
