import {
  assertEvent,
  assign,
  type EventObject,
  forwardTo,
  fromCallback,
  fromPromise,
  raise,
  sendTo,
  setup,
} from 'xstate';
import type { Fact, Message, RequestMessage } from '#bus/bus-messages.js';
import type { DatapathChange, FlowRefusal, Missing } from '#contracts/datapath.js';
import type { Program } from '#contracts/program.js';
import { backoffMs, codeOf, notProvided, sentenceOf } from './failure.js';
import { type Attached, type InterfacesEvent, type InterfacesInput, interfacesChart } from './interfaces.chart.js';
import { answeringAtOnce, BUSY, CLOSED, flipAnswered, UNUSABLE } from './program-answers.js';
import type { ReadinessMeta, ReadinessTag, Troubles } from './readiness.js';
import { refusal, refusalOf } from './refusal.js';
import {
  type Desired,
  type SwapCommitted,
  type SwapEvent,
  type SwapInput,
  type SwapOutput,
  swapChart,
} from './swap.chart.js';

export type DataplaneInput = {
  /** Whether the configuration has a `dataplane` section. */
  readonly configured: boolean;
  /** Whether the policy in force needs a dataplane. */
  readonly needed: boolean;
};

export type DataplaneContext = DataplaneInput & {
  /**
   * The compiled policy that must be in force. It stays here when the datapath is lost, so that the chart
   * can put it in force again.
   */
  readonly desired: Desired | null;
  readonly inForce: { readonly generation: number; readonly epoch: number } | null;
  /**
   * The program in force, if this process put it in force. The same generation can have several programs:
   * they differ in the members of selectors with which they were compiled.
   */
  readonly programInForce: Program | null;
  /**
   * Unix time in milliseconds since when the kernel enforces the generation in force. It stays here when the
   * datapath is lost, because the kernel continues to enforce. Null if nothing is in force, or if the time is
   * not known.
   */
  readonly inForceSinceMs: number | null;
  /**
   * The generation of the policy that this process found in force in the kernel; 0 if no policy was in
   * force.
   */
  readonly adopted: number;
  /**
   * Id of the flip request that the chart answers when `desired` is in force; null if no flip request waits
   * for an answer.
   */
  readonly flipRequest: string | null;
  readonly attempts: number;
  readonly trouble: Troubles;
  readonly notices: Troubles;
};

type DataplaneEvent =
  | RequestMessage<'program.stage' | 'program.flip' | 'program.unstage' | 'interfaces.change'>
  | Extract<Fact, { type: 'program.desired' | 'policy.activated' | 'dataplane.release_requested' }>
  | { readonly type: 'datapath.changed'; readonly change: DatapathChange }
  /** The swap chart sends `swap.committed`. */
  | SwapCommitted
  /**
   * This chart raises `datapath.lost` for itself when a request to the datapath fails or the datapath thread
   * dies.
   */
  | { readonly type: 'datapath.lost'; readonly reason: string };

/**
 * The policy that `open` found in force in the kernel. `generation` is 0 if none is in force. `sinceMs` is
 * null if none is in force, or if the time is not known.
 */
export type Adopted = { readonly generation: number; readonly sinceMs: number | null };

const MAX_ATTEMPTS = 5;
const part = 'dataplane_running';

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
    /** Opens the datapath. Resolves with the generation and the time of the policy in force in the kernel. */
    open: fromPromise<Adopted>(notProvided('open')),
    attach: fromPromise<Attached>(notProvided('attach')),
    watch: fromCallback<EventObject>(notProvided('watch')),
    close: fromPromise<void>(notProvided('close')),
    swap: swapChart,
    interfaces: interfacesChart,
  },
  actions: {
    publish: (_, _params: { message: Message | null }) => {},
    tellSwap: sendTo('swap', (_, params: SwapEvent) => params),
    forwardToSwap: forwardTo('swap'),
    tellInterfaces: sendTo('interfaces', (_, params: InterfacesEvent) => params),
    forwardToInterfaces: forwardTo('interfaces'),
    announceLoss: raise((_, { reason }: { reason: string }) => ({ type: 'datapath.lost' as const, reason })),
    rememberDesired: assign((_, { program, sample, generation }: Desired) => ({
      desired: { program, sample, generation },
    })),
    commit: assign((_, { target, flipRequest }: { target: Desired; flipRequest: string }) => ({
      desired: target,
      flipRequest,
    })),
    noteInForce: assign((_, { output }: { output: SwapOutput }) =>
      output.kind === 'flipped'
        ? {
            inForce: { generation: output.generation, epoch: output.epoch },
            programInForce: output.program,
            inForceSinceMs: output.sinceMs,
          }
        : {},
    ),
    forgetFlipRequest: assign({ flipRequest: null }),
    giveUpDesired: assign({ desired: null }),
    noteAdopted: assign((_, { generation, sinceMs }: Adopted) => ({
      adopted: generation,
      inForceSinceMs: sinceMs,
    })),
    loseDatapath: assign({ inForce: null, programInForce: null, notices: {} }),
    noteRefusals: assign((_, { change }: { change: DatapathChange }) => ({
      notices: change.type === 'refusals_changed' ? refusalNotices(change.refusing) : {},
    })),
    /**
     * Stops this actor with the error of a child, which can only be a bug. The node chart then starts the
     * actor again.
     */
    die: (_, { failure }: { failure: unknown }) => {
      throw failure;
    },
    countAttempt: assign({ attempts: ({ context }) => context.attempts + 1 }),
    resetAttempts: assign({ attempts: 0 }),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { [part]: params.trouble } })),
    clearTrouble: assign({ trouble: {} }),
  },
  guards: {
    notConfigured: ({ context }) => !context.configured,
    notConfiguredButNeeded: ({ context }) => !context.configured && context.needed,
    isNeeded: (_, params: { needed: boolean }) => params.needed,
    somethingIsMissing: (_, params: { missing: readonly unknown[] }) => params.missing.length > 0,
    workerDied: (_, { change }: { change: DatapathChange }) => change.type === 'worker_died',
    refusalsChanged: (_, { change }: { change: DatapathChange }) => change.type === 'refusals_changed',
    attemptsExhausted: ({ context }) => context.attempts >= MAX_ATTEMPTS,
    isInForce: ({ context }, params: { generation: number; program: Program }) =>
      context.inForce?.generation === params.generation && context.programInForce === params.program,
    isOlderThanAdopted: ({ context }, params: { generation: number }) => params.generation < context.adopted,
    desiredIsNotInForce: ({ context }) =>
      context.desired !== null &&
      context.desired.generation >= context.adopted &&
      (context.desired.generation !== context.inForce?.generation ||
        context.desired.program !== context.programInForce),
    /**
     * True if the stored policy is older than the policy in the kernel. This happens with another data
     * folder or an older copy of it. The chart does not put such a policy in force by itself (D20).
     */
    desiredIsOlderThanAdopted: ({ context }) =>
      context.desired !== null && context.desired.generation < context.adopted,
    isFlipped: (_, { output }: { output: SwapOutput }) => output.kind === 'flipped',
    isLost: (_, { output }: { output: SwapOutput }) => output.kind === 'lost',
    /** True if the compiled policy cannot be activated, because it exceeds a limit or its proof fails. */
    isRejected: (_, { output }: { output: SwapOutput }) => isRejection(output),
    isRejectedWhileEnforcing: ({ context }, { output }: { output: SwapOutput }) =>
      isRejection(output) && context.inForce !== null,
  },
  delays: {
    reopenBackoff: ({ context }) => backoffMs(context.attempts - 1, 200, 30_000),
    failedRetry: 30_000,
    /**
     * After this many milliseconds in the state `enforcing`, the chart resets its count of failed attempts
     * to open the datapath.
     */
    quietTime: 60_000,
    closeDeadline: 3_000,
  },
});

const REFUSALS: Readonly<Record<FlowRefusal, string>> = {
  flow_table_full: 'the flow table is full and refuses new flows (dataplane.flow_capacity)',
  flow_share: 'the flow table refuses new flows of sources that have used their share (dataplane.flow_share)',
};

/**
 * Returns the texts about refused flows for the readiness report. They do not change the readiness of the
 * node: a client that floods must not take the node out of service.
 */
const refusalNotices = (refusing: readonly FlowRefusal[]): Troubles =>
  refusing.length === 0 ? {} : { [part]: refusing.map((reason) => `degraded: ${REFUSALS[reason]}`).join('; ') };

type Published = { readonly message: Message | null };
type InContext = { readonly context: DataplaneContext };
type Done = { readonly event: { readonly output: SwapOutput } };
type Failed = { readonly event: { readonly error: unknown } };

const rejected = ({ context, event: { output } }: InContext & Done): Published => ({
  message: {
    type: 'program.rejected',
    generation: context.desired?.generation ?? 0,
    refusal: refusalOf('failure' in output ? output.failure : output.kind, 'dataplane_unavailable'),
  },
});
const withheld = ({ context: { adopted, desired } }: InContext): Published => ({
  message:
    desired === null
      ? null
      : {
          type: 'program.rejected',
          generation: desired.generation,
          refusal: refusal(
            'dataplane_unavailable',
            `the kernel enforces generation ${adopted}, but the newest generation in the data folder is ${desired.generation}: the data folder is another folder or an older copy. The kernel enforces its policy until a policy is written`,
          ),
        },
});
const enforcing = ({ context: { inForce } }: InContext): Published => ({
  message: inForce === null ? null : { type: 'dataplane.enforcing', ...inForce },
});
/**
 * Publishes `dataplane.attached` if this chart knows no policy, so that the policy chart sends the stored
 * policy again.
 */
const attached = ({ context: { desired } }: InContext): Published => ({
  message: desired === null ? { type: 'dataplane.attached' } : null,
});
const adopted = ({ generation }: Adopted): Published => ({ message: { type: 'dataplane.adopted', generation } });
const lost = ({ context }: InContext): Published => ({
  message: { type: 'dataplane.lost', reason: context.trouble[part] ?? '' },
});

const noteFailure = {
  type: 'noteTrouble',
  params: ({ event }: Failed) => ({ trouble: sentenceOf(event.error) }),
} as const;
const failing = { target: '#dataplane.backing_off', actions: noteFailure } as const;

const flipped = {
  guard: { type: 'isFlipped', params: ({ event }: Done) => event },
  target: '#dataplane.engaged.enforcing',
  actions: [
    { type: 'noteInForce', params: ({ event }: Done) => event },
    {
      type: 'publish',
      params: ({ context: { flipRequest, inForce } }: InContext) =>
        flipAnswered(flipRequest, { kind: 'flipped', epoch: inForce?.epoch ?? 0 }),
    },
    'forgetFlipRequest',
    { type: 'publish', params: enforcing },
  ],
} as const;

const isRejection = (output: SwapOutput): boolean =>
  output.kind === 'refused' && ['capacity_exceeded', 'proof_failed'].includes(codeOf(output.failure) ?? '');
const rejecting = <Target extends string>(target: Target) =>
  ({ target, actions: [{ type: 'publish', params: rejected }, 'giveUpDesired'] }) as const;

const losing = {
  actions: {
    type: 'announceLoss',
    params: ({ event: { output } }: Done) => ({
      reason: 'failure' in output ? sentenceOf(output.failure) : output.kind,
    }),
  },
} as const;
const announcingFailure = {
  actions: { type: 'announceLoss', params: ({ event }: Failed) => ({ reason: sentenceOf(event.error) }) },
} as const;

/**
 * The state that runs the swap chart for a stage request. If the swap ends without a flip, the state `idle`
 * of the same parent follows, and the former policy stays in force.
 */
const replacing = dataplane.createStateConfig({
  invoke: {
    id: 'swap',
    src: 'swap',
    input: ({ event }) => targetOf(event),
    onDone: [flipped, { guard: { type: 'isLost', params: ({ event }) => event }, ...losing }, { target: 'idle' }],
    onError: announcingFailure,
  },
  on: {
    'program.stage_requested': { actions: 'forwardToSwap' },
    'program.flip_requested': { actions: 'forwardToSwap' },
    'program.unstage_requested': { actions: 'forwardToSwap' },
    'swap.committed': { actions: { type: 'commit', params: ({ event }) => event } },
    'program.desired': [
      {
        guard: { type: 'isInForce', params: ({ event }) => event },
        actions: { type: 'publish', params: enforcing },
      },
      {
        guard: { type: 'isOlderThanAdopted', params: ({ event }) => event },
        actions: { type: 'rememberDesired', params: ({ event }) => event },
      },
      {
        actions: [
          { type: 'rememberDesired', params: ({ event }) => event },
          { type: 'tellSwap', params: { type: 'program.superseded' } },
        ],
      },
    ],
    'datapath.changed': {
      guard: { type: 'workerDied', params: ({ event }) => event },
      // The swap chart receives `datapath.lost`. It answers its pending requests and ends with the output
      // `lost`.
      actions: [
        { type: 'tellSwap', params: ({ event }) => ({ type: 'datapath.lost', reason: reasonOf(event.change) }) },
        'forwardToInterfaces',
      ],
    },
  },
});

function targetOf(event: DataplaneEvent): SwapInput {
  assertEvent(event, 'program.stage_requested');
  const { id, program, sample, generation } = event;
  return { target: { program, sample, generation }, stageRequest: id };
}

function present<T>(value: T | null): T {
  if (value === null) throw new Error('a program to put in force is missing');
  return value;
}

const reasonOf = (change: DatapathChange): string => (change.type === 'worker_died' ? change.reason : change.type);

export const dataplaneChart = dataplane.createMachine({
  id: 'dataplane',
  context: ({ input }) => ({
    ...input,
    desired: null,
    inForce: null,
    programInForce: null,
    inForceSinceMs: null,
    adopted: 0,
    flipRequest: null,
    attempts: 0,
    trouble: {},
    notices: {},
  }),
  initial: 'choosing',
  invoke: {
    id: 'interfaces',
    src: 'interfaces',
    input: ({ context }): InterfacesInput => ({ configured: context.configured }),
    onError: { actions: { type: 'die', params: ({ event }) => ({ failure: event.error }) } },
  },
  on: {
    ...answeringAtOnce(UNUSABLE),
    'program.desired': { actions: { type: 'rememberDesired', params: ({ event }) => event } },
    'dataplane.release_requested': { target: '.closing' },
    'interfaces.change_requested': { actions: 'forwardToInterfaces' },
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
      tags: `${part}:disabled`,
      meta: { part, detail: 'the configuration has no dataplane section' },
      on: {
        'policy.activated': {
          guard: { type: 'isNeeded', params: ({ event }) => ({ needed: event.needs.dataplane }) },
          target: 'needed_but_absent',
        },
        'dataplane.release_requested': 'closed',
      },
    },
    needed_but_absent: {
      tags: `${part}:needed_but_absent`,
      meta: {
        part,
        detail: 'a policy is active, but the configuration has no dataplane section: nothing enforces it',
      },
      on: {
        'policy.activated': {
          guard: { type: 'isNeeded', params: ({ event }) => ({ needed: !event.needs.dataplane }) },
          target: 'disabled',
        },
        'dataplane.release_requested': 'closed',
      },
    },
    probing: {
      tags: `${part}:starting`,
      meta: { part, detail: 'probing the features of the kernel and the capabilities of the process' },
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
        onError: failing,
      },
    },
    opening: {
      tags: `${part}:starting`,
      meta: { part, detail: 'loading the BPF programs and adopting pinned maps' },
      invoke: {
        id: 'open',
        src: 'open',
        onDone: {
          target: 'attaching',
          actions: [
            { type: 'noteAdopted', params: ({ event }) => event.output },
            { type: 'publish', params: ({ event }) => adopted(event.output) },
          ],
        },
        onError: failing,
      },
    },
    attaching: {
      tags: `${part}:starting`,
      meta: { part, detail: 'attaching to the interfaces and installing the guard' },
      invoke: {
        id: 'attach',
        src: 'attach',
        onDone: {
          target: 'engaged',
          actions: [
            {
              type: 'tellInterfaces',
              params: ({ event }) => ({ type: 'interfaces.attached', attached: event.output }),
            },
            { type: 'publish', params: attached },
          ],
        },
        onError: failing,
      },
    },
    engaged: {
      initial: 'attached',
      invoke: {
        id: 'watch',
        src: 'watch',
        onError: announcingFailure,
      },
      on: {
        ...answeringAtOnce(BUSY),
        'program.desired': [
          {
            guard: { type: 'isInForce', params: ({ event }) => event },
            actions: { type: 'publish', params: enforcing },
          },
          { actions: { type: 'rememberDesired', params: ({ event }) => event } },
        ],
        'datapath.lost': {
          target: 'backing_off',
          actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: event.reason }) },
        },
        'datapath.changed': [
          {
            guard: { type: 'workerDied', params: ({ event }) => event },
            actions: [
              'forwardToInterfaces',
              { type: 'announceLoss', params: ({ event }) => ({ reason: reasonOf(event.change) }) },
            ],
          },
          {
            guard: { type: 'refusalsChanged', params: ({ event }) => event },
            actions: { type: 'noteRefusals', params: ({ event }) => event },
          },
          { actions: 'forwardToInterfaces' },
        ],
      },
      states: {
        attached: {
          tags: `${part}:starting`,
          meta: { part, detail: 'attached; waiting for the first policy' },
          initial: 'idle',
          states: {
            idle: {
              always: [
                { guard: 'desiredIsOlderThanAdopted', target: '#dataplane.engaged.keeping' },
                { guard: 'desiredIsNotInForce', target: '#dataplane.engaged.loading' },
              ],
              on: { 'program.stage_requested': 'replacing' },
            },
            replacing,
          },
        },
        keeping: {
          tags: `${part}:ready`,
          meta: { part, detail: 'enforcing the policy that the kernel already had' },
          initial: 'idle',
          states: {
            idle: {
              always: [
                {
                  guard: 'desiredIsOlderThanAdopted',
                  actions: [{ type: 'publish', params: withheld }, 'giveUpDesired'],
                },
                { guard: 'desiredIsNotInForce', target: '#dataplane.engaged.loading' },
              ],
              on: { 'program.stage_requested': 'replacing' },
            },
            replacing,
          },
        },
        loading: {
          tags: `${part}:starting`,
          meta: { part, detail: 'activating the first policy' },
          invoke: {
            id: 'swap',
            src: 'swap',
            input: ({ context }): SwapInput => ({ target: present(context.desired), stageRequest: null }),
            onDone: [
              flipped,
              { guard: { type: 'isRejectedWhileEnforcing', params: ({ event }) => event }, ...rejecting('enforcing') },
              { guard: { type: 'isRejected', params: ({ event }) => event }, ...rejecting('attached') },
              losing,
            ],
            onError: announcingFailure,
          },
          on: {
            'program.desired': {
              target: 'loading',
              reenter: true,
              actions: { type: 'rememberDesired', params: ({ event }) => event },
            },
          },
        },
        enforcing: {
          tags: `${part}:ready`,
          meta: { part, detail: 'enforcing' },
          entry: 'clearTrouble',
          initial: 'idle',
          after: { quietTime: { actions: 'resetAttempts' } },
          states: {
            idle: {
              always: { guard: 'desiredIsNotInForce', target: '#dataplane.engaged.loading' },
              on: { 'program.stage_requested': 'replacing' },
            },
            replacing,
          },
        },
      },
    },
    backing_off: {
      tags: `${part}:degraded`,
      meta: {
        part,
        detail: 'the datapath will be opened again soon; the pinned programs continue to enforce',
      },
      entry: ['countAttempt', { type: 'publish', params: lost }, 'loseDatapath'],
      always: { guard: 'attemptsExhausted', target: 'failed' },
      after: { reopenBackoff: 'opening' },
    },
    failed: {
      tags: `${part}:failed`,
      meta: {
        part,
        detail: 'the datapath could not be opened; pinned programs continue to enforce',
      },
      after: { failedRetry: 'opening' },
    },
    unsupported: {
      tags: `${part}:failed`,
      meta: { part, detail: 'this machine does not meet the requirements of the dataplane' },
      entry: { type: 'publish', params: lost },
    },
    closing: {
      tags: `${part}:failed`,
      meta: { part, detail: 'closing the datapath; the pinned programs continue to enforce' },
      invoke: {
        id: 'close',
        src: 'close',
        onDone: 'closed',
        onError: { target: 'closed', actions: noteFailure },
      },
      after: { closeDeadline: 'closed' },
      on: { 'dataplane.release_requested': {} },
    },
    closed: {
      tags: `${part}:failed`,
      meta: { part, detail: 'closed; the pinned programs continue to enforce' },
      entry: [
        { type: 'publish', params: ({ context }) => flipAnswered(context.flipRequest, CLOSED) },
        { type: 'publish', params: { message: { type: 'dataplane.closed' } } },
      ],
      on: { 'dataplane.release_requested': {} },
    },
  },
});
