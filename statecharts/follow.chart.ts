import { assign, fromPromise, setup } from 'xstate';
import type { PolicyProposal } from '#bus/bus-messages.js';
import type { ProofSamples } from '#contracts/policy/proof-types.js';
import type { Refusal } from '#contracts/refusal.js';
import { notProvided } from './failure.js';
import { refusalOf } from './refusal.js';
import type { CompiledPolicy, PolicyInForce } from './write.chart.js';

/**
 * The active policy of the store, or a policy that another node proposes, in compiled form. `everActivated`:
 * whether any policy was ever active on this node (D27).
 */
export type CompiledStoredPolicy = CompiledPolicy & { readonly samples: ProofSamples; readonly everActivated: boolean };

export type FollowInput = {
  /**
   * The policy write of another node that this node prepares before the commit; null to follow the newest
   * commit.
   */
  readonly proposal: PolicyProposal | null;
  /** Whether the configuration has a dataplane section, so that the dataplane enforces the policy. */
  readonly enforced: boolean;
};
export type FollowOutput =
  /**
   * The proposal (policy write before its commit) was withdrawn, or this node refused it. The policy in force
   * is unchanged.
   */
  | { readonly kind: 'ended' }
  | {
      readonly kind: 'activated';
      readonly inForce: PolicyInForce;
      readonly epoch: number | null;
      readonly everActivated: boolean;
    }
  /** A policy that the cluster has committed could not be put in force on this node. */
  | { readonly kind: 'failed'; readonly reason: string };

/**
 * The vote of this node on a policy write of another node. If it is neither `staged` nor refused, this node
 * still prepares the policy.
 */
type Vote = { readonly proposal: PolicyProposal; readonly refusal: Refusal | null; readonly staged: boolean };

export type FollowEvent =
  /** The proposed policy write was committed. */
  | { readonly type: 'proposal.committed' }
  /** The proposal (policy write before its commit) was withdrawn, or its node left the cluster. */
  | { readonly type: 'proposal.ended' };

type FollowContext = FollowInput & {
  readonly compiled: CompiledStoredPolicy | null;
  /** Whether the policy is committed in the store of the cluster. Always true without a proposal. */
  readonly committed: boolean;
  readonly withdrawn: boolean;
  readonly output: FollowOutput;
};

const follow = setup({
  types: {
    context: {} as FollowContext,
    input: {} as FollowInput,
    output: {} as FollowOutput,
    events: {} as FollowEvent,
  },
  actors: {
    /**
     * Reads and compiles the policy of the proposal (policy write before its commit), or the active policy of
     * the store.
     */
    prepare: fromPromise<CompiledStoredPolicy, { proposal: PolicyProposal | null }>(notProvided('prepare')),
    /**
     * Writes the program to the idle program slot of the datapath, and proves it. If the program is too
     * large, compiles the policy again without rules for selector combinations that match no address now.
     * Resolves with the staged policy.
     */
    stage: fromPromise<CompiledStoredPolicy, CompiledStoredPolicy>(notProvided('stage')),
    unstage: fromPromise<void, { generation: number }>(notProvided('unstage')),
    flip: fromPromise<{ epoch: number }, { generation: number }>(notProvided('flip')),
  },
  actions: {
    /** Sends the vote of this node to the proposing node. */
    vote: (_, _params: { vote: Vote | null }) => {},
    noteCompiled: assign((_, { output }: { output: CompiledStoredPolicy }) => ({ compiled: output })),
    noteCommitted: assign({ committed: true }),
    noteWithdrawn: assign({ withdrawn: true }),
    noteActivated: assign(({ context }, { epoch }: { epoch: number | null }) => {
      const { inForce, everActivated } = present(context.compiled);
      return { output: { kind: 'activated' as const, inForce, epoch, everActivated } };
    }),
    noteFailure: assign(({ context }, { error }: { error: unknown }) => ({
      output: context.committed
        ? { kind: 'failed' as const, reason: refusalOf(error, 'feature_unavailable').detail }
        : context.output,
    })),
  },
  guards: {
    isEnforced: ({ context }) => context.enforced,
    isCommitted: ({ context }) => context.committed,
    isWithdrawn: ({ context }) => context.withdrawn && !context.committed,
  },
});

type InContext = { readonly context: FollowContext };
type Failed = { readonly event: { readonly error: unknown } };

function present<T>(value: T | null): T {
  if (value === null) throw new Error('apply a policy of another node: it was not compiled');
  return value;
}

const generationOf = ({ context }: InContext) => ({ generation: present(context.compiled).inForce.generation });
const votes =
  (staged: boolean) =>
  ({ context: { proposal } }: InContext) => ({
    vote: proposal === null ? null : { proposal, refusal: null, staged },
  });
const refuses = ({ context: { proposal }, event }: InContext & Failed) => ({
  vote: proposal === null ? null : { proposal, refusal: refusalOf(event.error, 'feature_unavailable'), staged: false },
});

/**
 * Puts the policy of another node in force. With a proposal, stages the policy and votes before the commit,
 * and flips after the commit. So all nodes of a cluster put the policy in force at almost the same time.
 */
export const followChart = follow.createMachine({
  id: 'follow',
  context: ({ input }) => ({
    ...input,
    compiled: null,
    committed: input.proposal === null,
    withdrawn: false,
    output: { kind: 'ended' },
  }),
  output: ({ context }) => context.output,
  initial: 'preparing',
  on: {
    'proposal.committed': { actions: 'noteCommitted' },
    'proposal.ended': { actions: 'noteWithdrawn' },
  },
  states: {
    preparing: {
      entry: { type: 'vote', params: votes(false) },
      invoke: {
        id: 'prepare',
        src: 'prepare',
        input: ({ context }) => context,
        onDone: [
          {
            guard: 'isEnforced',
            target: 'staging',
            actions: { type: 'noteCompiled', params: ({ event }) => event },
          },
          { target: 'staged', actions: { type: 'noteCompiled', params: ({ event }) => event } },
        ],
        onError: {
          target: 'ended',
          actions: [
            { type: 'noteFailure', params: ({ event }) => event },
            { type: 'vote', params: refuses },
          ],
        },
      },
      always: { guard: 'isWithdrawn', target: 'ended' },
    },
    staging: {
      invoke: {
        id: 'stage',
        src: 'stage',
        input: ({ context }) => present(context.compiled),
        onDone: { target: 'staged', actions: { type: 'noteCompiled', params: ({ event }) => event } },
        onError: {
          target: 'unstaging',
          actions: [
            { type: 'noteFailure', params: ({ event }) => event },
            { type: 'vote', params: refuses },
          ],
        },
      },
    },
    staged: {
      entry: { type: 'vote', params: votes(true) },
      always: [
        { guard: 'isWithdrawn', target: 'withdrawing' },
        { guard: 'isCommitted', target: 'committed' },
      ],
    },
    committed: {
      always: [
        { guard: 'isEnforced', target: 'flipping' },
        { target: 'ended', actions: { type: 'noteActivated', params: { epoch: null } } },
      ],
    },
    flipping: {
      invoke: {
        id: 'flip',
        src: 'flip',
        input: generationOf,
        onDone: { target: 'ended', actions: { type: 'noteActivated', params: ({ event }) => event.output } },
        onError: { target: 'ended', actions: { type: 'noteFailure', params: ({ event }) => event } },
      },
    },
    withdrawing: { always: [{ guard: 'isEnforced', target: 'unstaging' }, { target: 'ended' }] },
    unstaging: {
      invoke: { id: 'unstage', src: 'unstage', input: generationOf, onDone: 'ended', onError: 'ended' },
    },
    ended: { type: 'final' },
  },
});
