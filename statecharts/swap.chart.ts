import { assign, fromPromise, sendParent, setup } from 'xstate';
import type { Message, RequestMessage } from '#bus/bus-messages.js';
import type { Flipped } from '#contracts/datapath/datapath.js';
import type { Program } from '#contracts/policy/program.js';
import type { Proof, SamplesOrPromise } from '#contracts/policy/proof-types.js';
import { codeOf, notProvided, sentenceOf } from './failure.js';
import { answeringAtOnce, BUSY, LOST, stageAnswered, unstageAnswered } from './program-answers.js';
import { refusalOf } from './refusal.js';

export type Desired = { readonly program: Program; readonly samples: SamplesOrPromise; readonly generation: number };

export type SwapInput = {
  readonly target: Desired;
  /**
   * The id of the request to load a policy that the swap answers after the test in the kernel; the swap then
   * waits for a request to activate it. Null if no request started the swap; the swap then activates the
   * policy itself after the test.
   */
  readonly stageRequest: string | null;
};
export type SwapOutput =
  | ({ readonly kind: 'flipped'; readonly generation: number; readonly program: Program } & Flipped)
  | { readonly kind: 'unstaged' }
  /**
   * `refused`: staging or the proof (test of a compiled policy in the kernel) failed, and the former policy
   * stays in force. `lost`: a flip or unstage failed, or the datapath thread died, so the state of the
   * datapath is not known.
   */
  | { readonly kind: 'refused' | 'lost'; readonly failure: unknown };

type SwapContext = SwapInput & {
  /** Size of the staged policy, in cache lines of 64 bytes. */
  readonly lines: number;
  readonly unstageRequest: string | null;
  /**
   * True if the policy chart has sent a newer policy since the start of this swap. This swap must then not
   * put its policy in force.
   */
  readonly isSuperseded: boolean;
  readonly output: SwapOutput;
};
export type SwapEvent =
  | RequestMessage<'program.stage' | 'program.flip' | 'program.unstage'>
  | { readonly type: 'program.superseded' }
  | { readonly type: 'datapath.lost'; readonly reason: string };

/**
 * The swap chart sends this event to the dataplane chart just before it activates the policy. From then on,
 * `target` is the policy that must be in force, even if the datapath is lost.
 */
export type SwapCommitted = {
  readonly type: 'swap.committed';
  readonly target: Desired;
  readonly flipRequest: string;
};

const swap = setup({
  types: {
    context: {} as SwapContext,
    input: {} as SwapInput,
    output: {} as SwapOutput,
    events: {} as SwapEvent,
  },
  actors: {
    /**
     * Writes a compiled policy to the idle slot of the datapath. Resolves with the number of cache lines of
     * that policy.
     */
    stage: fromPromise<{ lines: number }, Desired>(notProvided('stage')),
    /**
     * Compares the verdicts of the staged policy in the kernel with those of the reference evaluator.
     * Rejects with the code `proof_failed` if a verdict differs.
     */
    prove: fromPromise<Proof, Desired>(notProvided('prove')),
    flip: fromPromise<Flipped, Desired>(notProvided('flip')),
    unstage: fromPromise<void>(notProvided('unstage')),
  },
  actions: {
    publish: (_, _params: { message: Message | null }) => {},
    announceCommitment: sendParent(
      ({ context }, params: { id: string }): SwapCommitted => ({
        type: 'swap.committed',
        target: context.target,
        flipRequest: params.id,
      }),
    ),
    takeTarget: assign((_, { program, samples, generation, id }: Desired & { id: string }) => ({
      target: { program, samples, generation },
      stageRequest: id,
    })),
    noteLines: assign((_, params: { lines: number }) => ({ lines: params.lines })),
    noteUnstage: assign((_, params: { id: string }) => ({ stageRequest: null, unstageRequest: params.id })),
    noteSuperseded: assign({ isSuperseded: true }),
    forgetStageRequest: assign({ stageRequest: null }),
    noteFlipped: assign(({ context }, flipped: Flipped) => ({
      output: {
        kind: 'flipped' as const,
        generation: context.target.generation,
        program: context.target.program,
        ...flipped,
      },
    })),
    noteRefused: assign((_, { failure }: { failure: unknown }) => ({ output: { kind: 'refused' as const, failure } })),
    noteLost: assign((_, { failure }: { failure: unknown }) => ({ output: { kind: 'lost' as const, failure } })),
  },
  guards: {
    isRequested: ({ context }) => context.stageRequest !== null,
    isSuperseded: ({ context }) => context.isSuperseded,
    isTarget: ({ context }, params: { generation: number }) => context.target.generation === params.generation,
  },
});

const unstaging = {
  'program.unstage_requested': {
    target: 'unstaging',
    actions: { type: 'noteUnstage', params: ({ event }: { event: { readonly id: string } }) => event },
  },
} as const;

/**
 * The transition after staging or the proof (test of a compiled policy in the kernel) has failed. It answers
 * the stage request with a refusal; the former policy stays in force.
 */
const refused = {
  target: 'refused',
  actions: [
    {
      type: 'publish',
      params: ({ context, event }: { context: SwapContext; event: { readonly error: unknown } }) =>
        stageAnswered(context.stageRequest, refusalOf(event.error, 'dataplane_unavailable')),
    },
    {
      type: 'noteRefused',
      params: ({ event }: { event: { readonly error: unknown } }) => ({ failure: event.error }),
    },
  ],
} as const;

const lost = {
  target: 'lost',
  actions: {
    type: 'noteLost',
    params: ({ event }: { event: { readonly error: unknown } }) => ({ failure: event.error }),
  },
} as const;

const proved = ({ context, event }: { context: SwapContext; event: { readonly output: Proof } }) => ({
  message: { type: 'program.proved', generation: context.target.generation, proof: event.output } as const,
});
const disproved = ({ context, event }: { context: SwapContext; event: { readonly error: unknown } }) => ({
  message:
    codeOf(event.error) === 'proof_failed'
      ? ({
          type: 'program.disproved',
          generation: context.target.generation,
          detail: sentenceOf(event.error),
        } as const)
      : null,
});

/**
 * Puts one compiled policy in force: writes it to an unused program slot of the kernel, tests it there
 * (proof), and activates it (flip).
 */
export const swapChart = swap.createMachine({
  id: 'swap',
  context: ({ input }) => ({
    ...input,
    lines: 0,
    unstageRequest: null,
    isSuperseded: false,
    output: { kind: 'unstaged' },
  }),
  output: ({ context }) => context.output,
  initial: 'staging',
  on: {
    ...answeringAtOnce(BUSY),
    'program.superseded': { actions: 'noteSuperseded' },
    'datapath.lost': {
      target: '.lost',
      actions: { type: 'noteLost', params: ({ event }) => ({ failure: event.reason }) },
    },
  },
  states: {
    staging: {
      invoke: {
        id: 'stage',
        src: 'stage',
        input: ({ context }) => context.target,
        onDone: { target: 'proving', actions: { type: 'noteLines', params: ({ event }) => event.output } },
        onError: refused,
      },
      on: unstaging,
    },
    proving: {
      invoke: {
        id: 'prove',
        src: 'prove',
        input: ({ context }) => context.target,
        onDone: [
          {
            guard: 'isRequested',
            target: 'staged',
            actions: [
              { type: 'publish', params: proved },
              {
                type: 'publish',
                params: ({ context: { stageRequest, lines }, event }) =>
                  stageAnswered(stageRequest, { kind: 'staged', lines, proof: event.output }),
              },
              'forgetStageRequest',
            ],
          },
          { target: 'flipping', actions: { type: 'publish', params: proved } },
        ],
        onError: { ...refused, actions: [{ type: 'publish', params: disproved }, ...refused.actions] },
      },
      on: unstaging,
    },
    staged: {
      always: { guard: 'isSuperseded', target: 'unstaging' },
      on: {
        'program.flip_requested': {
          guard: { type: 'isTarget', params: ({ event }) => event },
          target: 'flipping',
          actions: { type: 'announceCommitment', params: ({ event }) => event },
        },
        'program.stage_requested': {
          target: 'staging',
          actions: { type: 'takeTarget', params: ({ event }) => event },
        },
        ...unstaging,
      },
    },
    flipping: {
      invoke: {
        id: 'flip',
        src: 'flip',
        input: ({ context }) => context.target,
        onDone: { target: 'flipped', actions: { type: 'noteFlipped', params: ({ event }) => event.output } },
        onError: lost,
      },
    },
    unstaging: {
      invoke: { id: 'unstage', src: 'unstage', onDone: 'unstaged', onError: lost },
    },
    flipped: { type: 'final' },
    refused: { type: 'final' },
    unstaged: {
      type: 'final',
      entry: { type: 'publish', params: ({ context }) => unstageAnswered(context.unstageRequest) },
    },
    lost: {
      type: 'final',
      entry: [
        { type: 'publish', params: ({ context }) => stageAnswered(context.stageRequest, LOST) },
        { type: 'publish', params: ({ context }) => unstageAnswered(context.unstageRequest) },
      ],
    },
  },
});
