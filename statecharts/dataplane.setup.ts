import { assign, type EventObject, forwardTo, fromCallback, fromPromise, raise, sendTo, setup } from 'xstate';
import type { Fact, Message, RequestMessage } from '#bus/bus-messages.js';
import { backoffMs } from '#contracts/backoff.js';
import type { DatapathChange, FlowRefusal, Missing } from '#contracts/datapath/datapath.js';
import type { Program } from '#contracts/policy/program.js';
import { codeOf, notProvided } from './failure.js';
import { type Attached, type InterfacesEvent, interfacesChart } from './interfaces.chart.js';
import { readinessTypes, type Troubles } from './readiness.js';
import { type Desired, type SwapCommitted, type SwapEvent, type SwapOutput, swapChart } from './swap.chart.js';

export type DataplaneInput = {
  /** Whether the configuration has a `dataplane` section. */
  readonly configured: boolean;
  /** Whether the policy in force needs a dataplane. */
  readonly needed: boolean;
};

export type DataplaneContext = DataplaneInput & {
  /**
   * The compiled policy that must be in force. It is kept when the datapath is lost, so that the chart can
   * put it in force again.
   */
  readonly desired: Desired | null;
  readonly inForce: { readonly generation: number; readonly epoch: number } | null;
  /**
   * The program in force, if this process put it in force. The same generation can have several programs:
   * they differ in the members of selectors with which they were compiled.
   */
  readonly programInForce: Program | null;
  /**
   * Unix time in milliseconds since when the kernel enforces the generation in force. It is kept when the
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
   * The id of the request to put a policy in force that the chart answers when `desired` is in force; null if
   * no such request waits.
   */
  readonly flipRequest: string | null;
  readonly attempts: number;
  readonly trouble: Troubles;
  readonly notices: Troubles;
};

export type DataplaneEvent =
  | RequestMessage<'program.stage' | 'program.flip' | 'program.unstage' | 'interfaces.change'>
  | Extract<Fact, { type: 'program.desired' | 'policy.activated' | 'dataplane.release_requested' }>
  | { readonly type: 'datapath.changed'; readonly change: DatapathChange }
  /** The event `swap.committed`, which the swap chart sends when it activates a policy. */
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
/** The name of the readiness check of the dataplane chart. */
export const RUNNING = 'dataplane_running';

/** The types, actors, actions, guards and delays of the dataplane chart. */
export const dataplaneSetup = setup({
  types: readinessTypes<DataplaneContext, DataplaneInput, DataplaneEvent>(),
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
    rememberDesired: assign((_, { program, samples, generation }: Desired) => ({
      desired: { program, samples, generation },
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
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { [RUNNING]: params.trouble } })),
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
    /**
     * Returns true if the compiled policy exceeds a limit, if the kernel returned unexpected verdicts in the
     * proof (test run), or if the deadline of an unconfirmed policy has passed.
     */
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
 * node: a client that sends too much traffic must not take the node out of service.
 */
const refusalNotices = (refusing: readonly FlowRefusal[]): Troubles =>
  refusing.length === 0 ? {} : { [RUNNING]: refusing.map((reason) => `warning: ${REFUSALS[reason]}`).join('; ') };

const isRejection = (output: SwapOutput): boolean =>
  output.kind === 'refused' &&
  ['capacity_exceeded', 'proof_failed', 'no_base', 'outdated'].includes(codeOf(output.failure) ?? '');
