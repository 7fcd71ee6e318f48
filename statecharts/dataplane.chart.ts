import { assertEvent } from 'xstate';
import type { Message } from '#bus/bus-messages.js';
import type { DatapathChange } from '#contracts/datapath/datapath.js';
import { refusal } from '#contracts/refusal.js';
import {
  type Adopted,
  type DataplaneContext,
  type DataplaneEvent,
  dataplaneSetup as dataplane,
  RUNNING as part,
} from './dataplane.setup.js';
import { sentenceOf } from './failure.js';
import type { InterfacesInput } from './interfaces.chart.js';
import { answeringAtOnce, BUSY, CLOSED, flipAnswered, UNUSABLE } from './program-answers.js';
import { reports } from './readiness.js';
import { refusalOf } from './refusal.js';
import type { SwapInput, SwapOutput } from './swap.chart.js';

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
 * Publishes `dataplane.attached` if this chart has no policy to enforce, so that the policy chart sends the
 * stored policy again.
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
 * The state that stages a new policy on request, by the swap chart. If the swap chart ends without a flip,
 * the state `idle` of the same parent follows, and the former policy stays in force.
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
  const { id, program, samples, generation } = event;
  return { target: { program, samples, generation }, stageRequest: id };
}

function present<T>(value: T | null): T {
  if (value === null) throw new Error('put a policy in force: no compiled policy was given');
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
      ...reports(part, 'disabled', 'the configuration has no dataplane section'),
      on: {
        'policy.activated': {
          guard: { type: 'isNeeded', params: ({ event }) => ({ needed: event.needs.dataplane }) },
          target: 'needed_but_absent',
        },
        'dataplane.release_requested': 'closed',
      },
    },
    needed_but_absent: {
      ...reports(
        part,
        'needed_but_absent',
        'a policy is active, but the configuration has no dataplane section: nothing enforces it',
      ),
      on: {
        'policy.activated': {
          guard: { type: 'isNeeded', params: ({ event }) => ({ needed: !event.needs.dataplane }) },
          target: 'disabled',
        },
        'dataplane.release_requested': 'closed',
      },
    },
    probing: {
      ...reports(part, 'starting', 'probing the features of the kernel and the capabilities of the process'),
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
      ...reports(part, 'starting', 'loading the BPF programs and adopting pinned maps'),
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
      ...reports(part, 'starting', 'attaching to the interfaces and installing the guard'),
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
          ...reports(part, 'starting', 'attached; waiting for the first policy'),
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
          ...reports(part, 'ready', 'enforcing the policy that the kernel already had'),
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
          ...reports(part, 'starting', 'activating the first policy'),
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
          ...reports(part, 'ready', 'enforcing'),
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
      ...reports(part, 'degraded', 'the datapath will be opened again soon; the pinned programs continue to enforce'),
      entry: ['countAttempt', { type: 'publish', params: lost }, 'loseDatapath'],
      always: { guard: 'attemptsExhausted', target: 'failed' },
      after: { reopenBackoff: 'opening' },
    },
    failed: {
      ...reports(part, 'failed', 'the datapath could not be opened; pinned programs continue to enforce'),
      after: { failedRetry: 'opening' },
    },
    unsupported: {
      ...reports(part, 'failed', 'this machine does not meet the requirements of the dataplane'),
      entry: { type: 'publish', params: lost },
    },
    closing: {
      ...reports(part, 'failed', 'closing the datapath; the pinned programs continue to enforce'),
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
      ...reports(part, 'failed', 'closed; the pinned programs continue to enforce'),
      entry: [
        { type: 'publish', params: ({ context }) => flipAnswered(context.flipRequest, CLOSED) },
        { type: 'publish', params: { message: { type: 'dataplane.closed' } } },
      ],
      on: { 'dataplane.release_requested': {} },
    },
  },
});
