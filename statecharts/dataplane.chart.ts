import { assign, type EventObject, fromCallback, fromPromise, raise, setup } from 'xstate';
import type { Fact, Message, RequestMessage } from '#bus/bus-messages.js';
import type { Refusal } from '#bus/policy-requests.js';
import type { DatapathChange, FlowRefusal, Missing, Review } from '#contracts/datapath.js';
import type { Program } from '#contracts/program.js';
import type { Proof, Sampling } from '#contracts/proof-types.js';
import { backoffMs, notProvided, sentenceOf } from './failure.js';
import type { ReadinessMeta, ReadinessTag, Troubles } from './readiness.js';
import { refusal, refusalOf } from './refusal.js';

export type Desired = { readonly program: Program; readonly sample: Sampling; readonly generation: number };

/** `missing`: the configured names that no interface has. */
export type Attached = Review & { readonly missing: readonly string[] };

export type DataplaneInput = {
  /** Whether the configuration has a `dataplane` section. */
  readonly configured: boolean;
  /** Whether the policy in force needs a dataplane. */
  readonly needed: boolean;
};

export type DataplaneContext = DataplaneInput & {
  /** What is to be in force; survives the loss of the datapath. */
  readonly desired: Desired | null;
  /** What fills the idle slot on request. */
  readonly candidate: Desired | null;
  /** Size of what was staged last. */
  readonly lines: number;
  readonly inForce: { readonly generation: number; readonly epoch: number } | null;
  /** The generation that was found in force in the kernel; 0: none. */
  readonly adopted: number;
  /** Ids of the requests that are waiting for their answer. */
  readonly stageRequest: string | null;
  readonly flipRequest: string | null;
  readonly unstageRequest: string | null;
  readonly missingInterfaces: readonly string[];
  /** Faults that prevent policing as configured. */
  readonly faults: readonly string[];
  /** What a missing interface is called now, where it was renamed to what no pattern has. */
  readonly renamed: Readonly<Record<string, string>>;
  readonly attempts: number;
  readonly trouble: Troubles;
  readonly notices: Troubles;
};

type DataplaneEvent =
  | RequestMessage<'program.stage' | 'program.flip' | 'program.unstage'>
  | Extract<Fact, { type: 'program.desired' | 'policy.activated' | 'dataplane.release_requested' }>
  | { readonly type: 'datapath.changed'; readonly change: DatapathChange }
  /** Raised by the chart itself. */
  | { readonly type: 'interfaces.attached' };

const MAX_ATTEMPTS = 5;

const dataplane = setup({
  types: {
    context: {} as DataplaneContext,
    input: {} as DataplaneInput,
    events: {} as DataplaneEvent,
    tags: {} as ReadinessTag,
    meta: {} as ReadinessMeta,
  },
  actors: {
    probe: fromPromise<readonly Missing[]>(notProvided('probe')),
    /** Resolves with the generation that is in force in the kernel. */
    open: fromPromise<{ generation: number }>(notProvided('open')),
    attach: fromPromise<Attached>(notProvided('attach')),
    watch: fromCallback<EventObject>(notProvided('watch')),
    stage: fromPromise<{ lines: number }, Desired>(notProvided('stage')),
    /** Holds what is staged against the policy; rejects with `code` `proof_failed` where it does not hold. */
    prove: fromPromise<Proof, Desired>(notProvided('prove')),
    flip: fromPromise<{ epoch: number }>(notProvided('flip')),
    unstage: fromPromise<void>(notProvided('unstage')),
    close: fromPromise<void>(notProvided('close')),
  },
  actions: {
    publish: (_, _params: { message: Message | null }) => {},
    rememberDesired: assign((_, params: Desired) => ({
      desired: { program: params.program, sample: params.sample, generation: params.generation },
    })),
    rememberCandidate: assign((_, params: Desired & { id: string }) => ({
      candidate: { program: params.program, sample: params.sample, generation: params.generation },
      stageRequest: params.id,
    })),
    rememberLines: assign((_, params: { lines: number }) => ({ lines: params.lines })),
    forgetStageRequest: assign({ stageRequest: null }),
    desireCandidate: assign(({ context }, params: { id: string }) => ({
      desired: context.candidate,
      candidate: null,
      flipRequest: params.id,
    })),
    dropCandidate: assign({ candidate: null, stageRequest: null }),
    rememberUnstage: assign((_, params: { id: string }) => ({
      candidate: null,
      stageRequest: null,
      unstageRequest: params.id,
    })),
    forgetUnstageRequest: assign({ unstageRequest: null }),
    noteInForce: assign(({ context }, params: { epoch: number }) => ({
      inForce: context.desired === null ? null : { generation: context.desired.generation, epoch: params.epoch },
    })),
    forgetFlipRequest: assign({ flipRequest: null }),
    giveUpDesired: assign({ desired: null }),
    loseDatapath: assign({ inForce: null, candidate: null, notices: {} }),
    noteAttached: assign(({ context }, { missing, faults, warnings }: Attached) => ({
      missingInterfaces: missing,
      faults,
      notices: noting(context.notices, 'dataplane_config', warnings),
      renamed: Object.fromEntries(Object.entries(context.renamed).filter(([name]) => missing.includes(name))),
    })),
    noteRefusals: assign(({ context }, { change }: { change: DatapathChange }) => ({
      notices:
        change.type === 'refusals_changed'
          ? noting(context.notices, 'dataplane_running', refusalSentences(change.refusing))
          : context.notices,
    })),
    noteRenaming: assign(({ context }, { change }: { change: DatapathChange }) => ({
      renamed:
        change.type === 'interface_renamed' ? { ...context.renamed, [change.interface]: change.to } : context.renamed,
    })),
    noteLostPins: assign(({ context }, { change }: { change: DatapathChange }) =>
      change.type === 'pins_lost'
        ? {
            trouble: {
              ...context.trouble,
              dataplane_config: `pins were removed or replaced: ${change.pins.join(', ')}`,
            },
          }
        : {},
    ),
    noteAdopted: assign((_, params: { generation: number }) => ({ adopted: params.generation })),
    announceAttachment: raise({ type: 'interfaces.attached' }),
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    resetAttempts: assign({ attempts: 0 }),
    noteTrouble: assign(({ context }, params: { trouble: string }) => ({
      trouble: { ...context.trouble, dataplane_running: params.trouble },
    })),
    clearTrouble: assign(({ context }) => ({ trouble: without(context.trouble, 'dataplane_running') })),
    noteConfigTrouble: assign(({ context }, params: { trouble: string }) => ({
      trouble: { ...context.trouble, dataplane_config: params.trouble },
    })),
    clearConfigTrouble: assign(({ context }) => ({ trouble: without(context.trouble, 'dataplane_config') })),
  },
  guards: {
    notConfigured: ({ context }) => !context.configured,
    notConfiguredButNeeded: ({ context }) => !context.configured && context.needed,
    isNeeded: (_, params: { needed: boolean }) => params.needed,
    somethingIsMissing: (_, params: { missing: readonly unknown[] }) => params.missing.length > 0,
    isFaulty: ({ context }) => context.faults.length > 0,
    interfacesAreMissing: ({ context }) => context.missingInterfaces.length > 0,
    workerDied: ({ event }) => event.type === 'datapath.changed' && event.change.type === 'worker_died',
    lostItsName: (_, { change }: { change: DatapathChange }) => change.type === 'interface_renamed' && !change.policed,
    refusalsChanged: (_, { change }: { change: DatapathChange }) => change.type === 'refusals_changed',
    interfacesChanged: ({ event }) =>
      event.type === 'datapath.changed' &&
      event.change.type !== 'worker_died' &&
      event.change.type !== 'refusals_changed',
    attemptsExhausted: ({ context }) => context.attempts >= MAX_ATTEMPTS,
    isInForce: ({ context }, params: { generation: number }) => context.inForce?.generation === params.generation,
    isCandidate: ({ context }, params: { generation: number }) => context.candidate?.generation === params.generation,
    desiredIsNotInForce: ({ context }) =>
      context.desired !== null &&
      context.desired.generation >= context.adopted &&
      context.desired.generation !== context.inForce?.generation,
    /** Another data folder, or an older copy: never applied by itself (D20). */
    desiredIsOlderThanAdopted: ({ context }) =>
      context.desired !== null && context.desired.generation < context.adopted,
    isEnforcing: ({ context }) => context.inForce !== null,
    exceedsCapacity: (_, params: { failure: unknown }) => codeOf(params.failure) === 'capacity_exceeded',
    isDisproved: (_, params: { failure: unknown }) => codeOf(params.failure) === 'proof_failed',
  },
  delays: {
    reopenBackoff: ({ context }) => backoffMs(context.attempts - 1, 200, 30_000),
    failedRetry: 30_000,
    reattachBackoff: 2_000,
    /** Enforcing for so long wipes out earlier failures. */
    quietTime: 60_000,
    closeDeadline: 3_000,
  },
});

const missingNames = ({ missingInterfaces, renamed }: DataplaneContext): string =>
  missingInterfaces
    .map((name) => (renamed[name] === undefined ? name : `${name} (is called ${renamed[name]} now, and not policed)`))
    .join(', ');

const faultsOf = (context: DataplaneContext): string =>
  [
    ...context.faults,
    ...(context.missingInterfaces.length === 0 ? [] : [`no interface has this name: ${missingNames(context)}`]),
  ].join('; ');

function noting(notices: Troubles, part: keyof Troubles, sentences: readonly string[]): Troubles {
  return { ...notices, [part]: sentences.length === 0 ? undefined : sentences.join('; ') };
}

const REFUSALS: Readonly<Record<FlowRefusal, string>> = {
  flow_table_full: 'the flow table is full and refuses new flows (dataplane.flow_capacity)',
  flow_share: 'the flow table refuses new flows of sources that have their share of it (dataplane.flow_share)',
};

/** The node stays ready: a client that floods must not take it out of service. */
const refusalSentences = (refusing: readonly FlowRefusal[]): readonly string[] =>
  refusing.map((reason) => `degraded: ${REFUSALS[reason]}`);

function without(trouble: Troubles, part: keyof Troubles): Troubles {
  return { ...trouble, [part]: undefined };
}

function codeOf(failure: unknown): unknown {
  return failure instanceof Error && 'code' in failure ? failure.code : undefined;
}

const UNUSABLE: Refusal = refusal('dataplane_unavailable', 'the dataplane does not enforce at the moment; see /ready');
const BUSY: Refusal = refusal('dataplane_unavailable', 'the dataplane is putting another program in force');
const LOST: Refusal = refusal('dataplane_unavailable', 'the dataplane was lost while it was asked');
const CLOSED: Refusal = refusal('dataplane_unavailable', 'the dataplane is closed');

type Published = { message: Message | null };
const stageAnswered = (
  id: string | null,
  outcome: { kind: 'staged'; lines: number; proof: Proof } | Refusal,
): Published => ({
  message: id === null ? null : { type: 'program.stage_answered', id, outcome },
});
const proved = (judged: Desired | null, proof: Proof): Published => ({
  message: judged === null ? null : { type: 'program.proved', generation: judged.generation, proof },
});
const disproved = (judged: Desired | null, failure: unknown): Published => ({
  message:
    judged === null || codeOf(failure) !== 'proof_failed'
      ? null
      : { type: 'program.disproved', generation: judged.generation, detail: sentenceOf(failure) },
});
const rejected = (judged: Desired | null, failure: unknown): Published => ({
  message: {
    type: 'program.rejected',
    generation: judged?.generation ?? 0,
    refusal: refusalOf(failure, 'dataplane_unavailable'),
  },
});
const flipAnswered = (id: string | null, outcome: { kind: 'flipped'; epoch: number } | Refusal): Published => ({
  message: id === null ? null : { type: 'program.flip_answered', id, outcome },
});
const unstageAnswered = (id: string | null): Published => ({
  message: id === null ? null : { type: 'program.unstage_answered', id, outcome: { kind: 'unstaged' } },
});
const enforcing = (inForce: { generation: number; epoch: number } | null): Published => ({
  message: inForce === null ? null : { type: 'dataplane.enforcing', ...inForce },
});
const withheld = ({ adopted, desired }: DataplaneContext): Published => ({
  message:
    desired === null
      ? null
      : {
          type: 'program.rejected',
          generation: desired.generation,
          refusal: refusal(
            'dataplane_unavailable',
            `the kernel enforces generation ${adopted}, and the newest in the data folder is ${desired.generation}: it is another folder, or an older copy; what the kernel enforces stays in force until a policy is written`,
          ),
        },
});
/** Asks for a program where none is known. */
const attached = (desired: Desired | null): Published => ({
  message: desired === null ? { type: 'dataplane.attached' } : null,
});
const lost = (failure: unknown): Published => ({
  message: { type: 'dataplane.lost', reason: sentenceOf(failure) },
});

const reattachAtChange = {
  guard: 'interfacesChanged',
  target: 'reattaching',
  actions: {
    type: 'noteLostPins',
    params: ({ event }: { event: { change: DatapathChange } }) => ({ change: event.change }),
  },
} as const;

/** The steps of a swap on request; `home` is where a swap that was given up ends. */
const replacingAt = (home: string) =>
  dataplane.createStateConfig({
    initial: 'staging',
    states: {
      staging: {
        invoke: {
          id: 'stage',
          src: 'stage',
          input: ({ context }) => present(context.candidate),
          onDone: {
            target: 'proving',
            actions: { type: 'rememberLines', params: ({ event }) => ({ lines: event.output.lines }) },
          },
          onError: {
            target: home,
            actions: [
              {
                type: 'publish',
                params: ({ context, event }) =>
                  stageAnswered(context.stageRequest, refusalOf(event.error, 'dataplane_unavailable')),
              },
              'dropCandidate',
            ],
          },
        },
        on: {
          'program.unstage_requested': {
            target: 'unstaging',
            actions: { type: 'rememberUnstage', params: ({ event }) => ({ id: event.id }) },
          },
        },
      },
      proving: {
        invoke: {
          id: 'prove',
          src: 'prove',
          input: ({ context }) => present(context.candidate),
          onDone: {
            target: 'staged',
            actions: [
              { type: 'publish', params: ({ context, event }) => proved(context.candidate, event.output) },
              {
                type: 'publish',
                params: ({ context, event }) =>
                  stageAnswered(context.stageRequest, { kind: 'staged', lines: context.lines, proof: event.output }),
              },
              'forgetStageRequest',
            ],
          },
          onError: {
            target: home,
            actions: [
              { type: 'publish', params: ({ context, event }) => disproved(context.candidate, event.error) },
              {
                type: 'publish',
                params: ({ context, event }) =>
                  stageAnswered(context.stageRequest, refusalOf(event.error, 'dataplane_unavailable')),
              },
              'dropCandidate',
            ],
          },
        },
        on: {
          'program.unstage_requested': {
            target: 'unstaging',
            actions: { type: 'rememberUnstage', params: ({ event }) => ({ id: event.id }) },
          },
        },
      },
      staged: {
        always: { guard: 'desiredIsNotInForce', target: 'unstaging', actions: 'dropCandidate' },
        on: {
          'program.flip_requested': {
            guard: { type: 'isCandidate', params: ({ event }) => ({ generation: event.generation }) },
            target: 'flipping',
            actions: { type: 'desireCandidate', params: ({ event }) => ({ id: event.id }) },
          },
          'program.stage_requested': {
            target: 'staging',
            actions: { type: 'rememberCandidate', params: ({ event }) => event },
          },
          'program.unstage_requested': {
            target: 'unstaging',
            actions: { type: 'rememberUnstage', params: ({ event }) => ({ id: event.id }) },
          },
        },
      },
      flipping: {
        invoke: {
          id: 'flip',
          src: 'flip',
          onDone: {
            target: '#dataplane.running.engaged.enforcing.current',
            actions: [
              { type: 'noteInForce', params: ({ event }) => event.output },
              {
                type: 'publish',
                params: ({ context, event }) =>
                  flipAnswered(context.flipRequest, { kind: 'flipped', epoch: event.output.epoch }),
              },
              'forgetFlipRequest',
              { type: 'publish', params: ({ context }) => enforcing(context.inForce) },
            ],
          },
          onError: {
            target: '#dataplane.running.backing_off',
            actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
          },
        },
      },
      unstaging: {
        invoke: {
          id: 'unstage',
          src: 'unstage',
          onDone: {
            target: home,
            actions: [
              { type: 'publish', params: ({ context }) => unstageAnswered(context.unstageRequest) },
              'forgetUnstageRequest',
            ],
          },
          onError: {
            target: '#dataplane.running.backing_off',
            actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
          },
        },
      },
    },
  });

function present<T>(value: T | null): T {
  if (value === null) throw new Error('a program to stage is missing');
  return value;
}

export const dataplaneChart = dataplane.createMachine({
  id: 'dataplane',
  type: 'parallel',
  context: ({ input }) => ({
    ...input,
    desired: null,
    candidate: null,
    lines: 0,
    inForce: null,
    adopted: 0,
    stageRequest: null,
    flipRequest: null,
    unstageRequest: null,
    missingInterfaces: [],
    faults: [],
    notices: {},
    renamed: {},
    attempts: 0,
    trouble: {},
  }),
  states: {
    running: {
      initial: 'choosing',
      on: {
        'program.desired': { actions: { type: 'rememberDesired', params: ({ event }) => event } },
        'program.stage_requested': {
          actions: { type: 'publish', params: ({ event }) => stageAnswered(event.id, UNUSABLE) },
        },
        'program.flip_requested': {
          actions: { type: 'publish', params: ({ event }) => flipAnswered(event.id, UNUSABLE) },
        },
        'program.unstage_requested': {
          actions: { type: 'publish', params: ({ event }) => unstageAnswered(event.id) },
        },
        'dataplane.release_requested': { target: '.closing' },
      },
      states: {
        choosing: {
          always: [
            { guard: 'notConfiguredButNeeded', target: 'needed_but_absent' },
            { guard: 'notConfigured', target: 'disabled' },
            { target: 'probing' },
          ],
        },
        disabled: {
          tags: 'dataplane_running:disabled',
          meta: { part: 'dataplane_running', detail: 'the configuration has no dataplane section' },
          on: {
            'policy.activated': {
              guard: { type: 'isNeeded', params: ({ event }) => ({ needed: event.needs.dataplane }) },
              target: 'needed_but_absent',
            },
            'dataplane.release_requested': { target: 'closed' },
          },
        },
        needed_but_absent: {
          tags: 'dataplane_running:needed_but_absent',
          meta: {
            part: 'dataplane_running',
            detail: 'a policy is active, but the configuration has no dataplane section: nothing enforces it',
          },
          on: {
            'policy.activated': {
              guard: { type: 'isNeeded', params: ({ event }) => ({ needed: !event.needs.dataplane }) },
              target: 'disabled',
            },
            'dataplane.release_requested': { target: 'closed' },
          },
        },
        probing: {
          tags: 'dataplane_running:starting',
          meta: { part: 'dataplane_running', detail: 'looking at what this kernel and this user can do' },
          invoke: {
            id: 'probe',
            src: 'probe',
            onDone: [
              {
                guard: { type: 'somethingIsMissing', params: ({ event }) => ({ missing: event.output }) },
                target: 'unsupported',
                actions: {
                  type: 'noteTrouble',
                  params: ({ event }) => ({ trouble: event.output.map(({ sentence }) => sentence).join(' ') }),
                },
              },
              { target: 'opening' },
            ],
            onError: {
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
        },
        opening: {
          tags: 'dataplane_running:starting',
          meta: { part: 'dataplane_running', detail: 'loading the programs, adopting what is pinned' },
          invoke: {
            id: 'open',
            src: 'open',
            onDone: {
              target: 'attaching',
              actions: [
                { type: 'noteAdopted', params: ({ event }) => event.output },
                {
                  type: 'publish',
                  params: ({ event }) => ({ message: { type: 'dataplane.adopted', ...event.output } }),
                },
              ],
            },
            onError: {
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
        },
        attaching: {
          tags: 'dataplane_running:starting',
          meta: { part: 'dataplane_running', detail: 'attaching to the interfaces and making the guard' },
          invoke: {
            id: 'attach',
            src: 'attach',
            onDone: {
              target: 'engaged',
              actions: [
                { type: 'noteAttached', params: ({ event }) => event.output },
                'announceAttachment',
                { type: 'publish', params: ({ context }) => attached(context.desired) },
              ],
            },
            onError: {
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
        },
        engaged: {
          initial: 'attached',
          invoke: {
            id: 'watch',
            src: 'watch',
            onError: {
              target: 'backing_off',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
          on: {
            'datapath.changed': [
              {
                guard: 'workerDied',
                target: 'backing_off',
                actions: {
                  type: 'noteTrouble',
                  params: ({ event }) => ({
                    trouble: event.change.type === 'worker_died' ? event.change.reason : event.change.type,
                  }),
                },
              },
              {
                guard: { type: 'lostItsName', params: ({ event }) => ({ change: event.change }) },
                actions: { type: 'noteRenaming', params: ({ event }) => ({ change: event.change }) },
              },
              {
                guard: { type: 'refusalsChanged', params: ({ event }) => ({ change: event.change }) },
                actions: { type: 'noteRefusals', params: ({ event }) => ({ change: event.change }) },
              },
            ],
            'program.desired': [
              {
                guard: { type: 'isInForce', params: ({ event }) => ({ generation: event.generation }) },
                actions: { type: 'publish', params: ({ context }) => enforcing(context.inForce) },
              },
              { actions: { type: 'rememberDesired', params: ({ event }) => event } },
            ],
            'program.stage_requested': {
              actions: { type: 'publish', params: ({ event }) => stageAnswered(event.id, BUSY) },
            },
          },
          states: {
            attached: {
              tags: 'dataplane_running:starting',
              meta: { part: 'dataplane_running', detail: 'attached; waiting for the first program' },
              initial: 'idle',
              states: {
                idle: {
                  always: [
                    { guard: 'desiredIsOlderThanAdopted', target: '#dataplane.running.engaged.keeping' },
                    { guard: 'desiredIsNotInForce', target: '#dataplane.running.engaged.loading' },
                  ],
                  on: {
                    'program.stage_requested': {
                      target: 'replacing',
                      actions: { type: 'rememberCandidate', params: ({ event }) => event },
                    },
                  },
                },
                replacing: replacingAt('#dataplane.running.engaged.attached.idle'),
              },
            },
            keeping: {
              tags: 'dataplane_running:ready',
              meta: { part: 'dataplane_running', detail: 'enforcing the policy that was found in the kernel' },
              initial: 'idle',
              states: {
                idle: {
                  always: [
                    {
                      guard: 'desiredIsOlderThanAdopted',
                      actions: [{ type: 'publish', params: ({ context }) => withheld(context) }, 'giveUpDesired'],
                    },
                    { guard: 'desiredIsNotInForce', target: '#dataplane.running.engaged.loading' },
                  ],
                  on: {
                    'program.stage_requested': {
                      target: 'replacing',
                      actions: { type: 'rememberCandidate', params: ({ event }) => event },
                    },
                  },
                },
                replacing: replacingAt('#dataplane.running.engaged.keeping.idle'),
              },
            },
            loading: {
              tags: 'dataplane_running:starting',
              meta: { part: 'dataplane_running', detail: 'putting the first program in force' },
              initial: 'staging',
              on: {
                'program.desired': {
                  target: 'loading',
                  reenter: true,
                  actions: { type: 'rememberDesired', params: ({ event }) => event },
                },
              },
              states: {
                staging: {
                  invoke: {
                    id: 'stageDesired',
                    src: 'stage',
                    input: ({ context }) => present(context.desired),
                    onDone: 'proving',
                    onError: [
                      {
                        guard: { type: 'exceedsCapacity', params: ({ event }) => ({ failure: event.error }) },
                        target: '#dataplane.running.engaged.rejecting',
                        actions: [
                          { type: 'publish', params: ({ context, event }) => rejected(context.desired, event.error) },
                          'giveUpDesired',
                        ],
                      },
                      {
                        target: '#dataplane.running.backing_off',
                        actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
                      },
                    ],
                  },
                },
                proving: {
                  invoke: {
                    id: 'proveDesired',
                    src: 'prove',
                    input: ({ context }) => present(context.desired),
                    onDone: {
                      target: 'flipping',
                      actions: {
                        type: 'publish',
                        params: ({ context, event }) => proved(context.desired, event.output),
                      },
                    },
                    onError: [
                      {
                        guard: { type: 'isDisproved', params: ({ event }) => ({ failure: event.error }) },
                        target: '#dataplane.running.engaged.rejecting',
                        actions: [
                          { type: 'publish', params: ({ context, event }) => disproved(context.desired, event.error) },
                          { type: 'publish', params: ({ context, event }) => rejected(context.desired, event.error) },
                          'giveUpDesired',
                        ],
                      },
                      {
                        target: '#dataplane.running.backing_off',
                        actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
                      },
                    ],
                  },
                },
                flipping: {
                  invoke: {
                    id: 'flipDesired',
                    src: 'flip',
                    onDone: {
                      target: '#dataplane.running.engaged.enforcing',
                      actions: [
                        { type: 'noteInForce', params: ({ event }) => event.output },
                        {
                          type: 'publish',
                          params: ({ context, event }) =>
                            flipAnswered(context.flipRequest, { kind: 'flipped', epoch: event.output.epoch }),
                        },
                        'forgetFlipRequest',
                        { type: 'publish', params: ({ context }) => enforcing(context.inForce) },
                      ],
                    },
                    onError: {
                      target: '#dataplane.running.backing_off',
                      actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
                    },
                  },
                },
              },
            },
            rejecting: {
              always: [{ guard: 'isEnforcing', target: 'enforcing' }, { target: 'attached' }],
            },
            enforcing: {
              tags: 'dataplane_running:ready',
              meta: { part: 'dataplane_running', detail: 'enforcing' },
              entry: 'clearTrouble',
              initial: 'current',
              after: { quietTime: { actions: 'resetAttempts' } },
              states: {
                current: {
                  always: {
                    guard: 'desiredIsNotInForce',
                    target: '#dataplane.running.engaged.loading',
                  },
                  on: {
                    'program.stage_requested': {
                      target: 'replacing',
                      actions: { type: 'rememberCandidate', params: ({ event }) => event },
                    },
                  },
                },
                replacing: replacingAt('#dataplane.running.engaged.enforcing.current'),
              },
            },
          },
        },
        backing_off: {
          tags: 'dataplane_running:degraded',
          meta: {
            part: 'dataplane_running',
            detail: 'the datapath is opened again soon; what is pinned in the kernel goes on enforcing',
          },
          entry: [
            'countAttempt',
            { type: 'publish', params: ({ context }) => stageAnswered(context.stageRequest, LOST) },
            { type: 'publish', params: ({ context }) => unstageAnswered(context.unstageRequest) },
            { type: 'publish', params: ({ context }) => lost(context.trouble.dataplane_running) },
            'loseDatapath',
            'forgetStageRequest',
            'forgetUnstageRequest',
          ],
          always: { guard: 'attemptsExhausted', target: 'failed' },
          after: { reopenBackoff: 'opening' },
        },
        failed: {
          tags: 'dataplane_running:failed',
          meta: {
            part: 'dataplane_running',
            detail: 'the datapath could not be opened; what is pinned in the kernel goes on enforcing',
          },
          after: { failedRetry: 'opening' },
        },
        unsupported: {
          tags: 'dataplane_running:failed',
          meta: { part: 'dataplane_running', detail: 'this machine lacks what the dataplane needs' },
          entry: { type: 'publish', params: ({ context }) => lost(context.trouble.dataplane_running) },
        },
        closing: {
          tags: 'dataplane_running:failed',
          meta: { part: 'dataplane_running', detail: 'letting go of the datapath, which goes on enforcing' },
          invoke: {
            id: 'close',
            src: 'close',
            onDone: 'closed',
            onError: {
              target: 'closed',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
          after: { closeDeadline: 'closed' },
          on: { 'dataplane.release_requested': {} },
        },
        closed: {
          tags: 'dataplane_running:failed',
          meta: { part: 'dataplane_running', detail: 'closed; what is pinned in the kernel goes on enforcing' },
          entry: [
            { type: 'publish', params: ({ context }) => flipAnswered(context.flipRequest, CLOSED) },
            { type: 'publish', params: { message: { type: 'dataplane.closed' } } },
          ],
          on: { 'dataplane.release_requested': {} },
        },
      },
    },
    config: {
      initial: 'choosing',
      on: {
        'interfaces.attached': [
          {
            guard: 'isFaulty',
            target: '.refused',
            actions: {
              type: 'noteConfigTrouble',
              params: ({ context }) => ({ trouble: faultsOf(context) }),
            },
          },
          {
            guard: 'interfacesAreMissing',
            target: '.interface_missing',
            actions: {
              type: 'noteConfigTrouble',
              params: ({ context }) => ({ trouble: missingNames(context) }),
            },
          },
          { target: '.configured', actions: 'clearConfigTrouble' },
        ],
        'datapath.changed': { guard: 'workerDied', target: '.unresolved' },
      },
      states: {
        choosing: { always: [{ guard: 'notConfigured', target: 'no_section' }, { target: 'unresolved' }] },
        no_section: {
          tags: 'dataplane_config:failed',
          meta: {
            part: 'dataplane_config',
            detail: 'the configuration has no dataplane section: policies are stored, and nothing enforces them',
          },
        },
        unresolved: {
          tags: 'dataplane_config:starting',
          meta: { part: 'dataplane_config', detail: 'the interfaces are not known before the datapath is attached' },
          entry: 'clearConfigTrouble',
        },
        configured: {
          tags: 'dataplane_config:ready',
          meta: { part: 'dataplane_config', detail: 'every configured interface carries the datapath' },
          on: { 'datapath.changed': reattachAtChange },
        },
        refused: {
          tags: 'dataplane_config:failed',
          meta: { part: 'dataplane_config', detail: 'a configured interface cannot be policed as it is' },
          on: { 'datapath.changed': reattachAtChange },
        },
        interface_missing: {
          tags: 'dataplane_config:degraded',
          meta: { part: 'dataplane_config', detail: 'no interface has this name' },
          on: { 'datapath.changed': reattachAtChange },
        },
        reattaching: {
          tags: 'dataplane_config:degraded',
          meta: { part: 'dataplane_config', detail: 'interfaces, the guard or pins changed; attaching again' },
          invoke: {
            id: 'reattach',
            src: 'attach',
            onDone: {
              actions: [{ type: 'noteAttached', params: ({ event }) => event.output }, 'announceAttachment'],
            },
            onError: {
              target: 'reattach_failed',
              actions: { type: 'noteConfigTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
          on: {
            'datapath.changed': { ...reattachAtChange, reenter: true },
          },
        },
        reattach_failed: {
          tags: 'dataplane_config:failed',
          meta: { part: 'dataplane_config', detail: 'attaching again failed; tried again soon' },
          after: { reattachBackoff: 'reattaching' },
          on: { 'datapath.changed': reattachAtChange },
        },
      },
    },
  },
});
