import { assign, fromPromise, setup } from 'xstate';
import { ApiFailure, type Schemas } from '../api/client.js';
import { chartTypes } from './chart-types.js';

/** A text that is made only when it is read: the text of an editor can have millions of characters. */
export type LazyText = { readonly length: number; toString(): string };

/** A change of the stored policies that a person prepares. `id`: the policy; null for a new one. */
export type PolicyChange =
  | {
      readonly kind: 'text';
      readonly id: string | null;
      readonly text: LazyText;
      /** False: the policy is only stored. Null: the node decides by the mode. */
      readonly activate: boolean | null;
      /** The ETag of the stored text from which the draft was made. */
      readonly etag: string | null;
    }
  | { readonly kind: 'rollback'; readonly id: string; readonly revision: number; readonly etag: string | null }
  | { readonly kind: 'activate' | 'delete'; readonly id: string; readonly etag: string | null };

/** A fault of a draft. `from` and `to` are offsets in its text; absent for a fault without a place. */
export type DraftProblem = {
  readonly pointer: string;
  readonly message: string;
  readonly from?: number;
  readonly to?: number;
};

/** The answer of the node to a draft. */
export type Judgement =
  | { readonly isSound: true; readonly result: Schemas['PolicyDryRun']; readonly warnings: readonly DraftProblem[] }
  | { readonly isSound: false; readonly problems: readonly DraftProblem[] };

/** How a change is applied. */
export type Terms = {
  /**
   * The time in seconds after which the change is reverted unless it is confirmed; null: it needs no
   * confirmation.
   */
  readonly confirmWithin: number | null;
  /** In a cluster: the percentage of the nodes that enforce the change first, for how many seconds. */
  readonly rollout?: { readonly share: number; readonly hold: number } | null;
  readonly comment: string;
  /** The assertions that the change may break. */
  readonly overrides: readonly string[];
};

/** A change that the node has written. `generation`: null if nothing in force changed. */
export type Applied = {
  readonly generation: number | null;
  readonly revision: number | null;
  readonly at: number;
};

/** The report of the node about the change in force and about pending changes. */
export type PendingReport = {
  readonly generation: number;
  readonly pending: Schemas['PendingChange'];
};

type Begin = 'clean' | 'edited' | 'review';
type Context = {
  readonly begin: Begin;
  readonly change: PolicyChange;
  readonly judgement: Judgement | null;
  /** Why the last request failed. */
  readonly failure: unknown;
  readonly terms: Terms | null;
  readonly applied: Applied | null;
  /** Why the node reverted the change. */
  readonly revertReason: string | null;
};

type Event =
  | { readonly type: 'edited'; readonly change: PolicyChange }
  | { readonly type: 'discarded'; readonly change: PolicyChange }
  | { readonly type: 'review_requested' | 'review_left' | 'acknowledged' }
  /** The person has changed what is to be done, in the review. */
  | { readonly type: 'change_chosen'; readonly change: PolicyChange }
  | { readonly type: 'apply_requested'; readonly terms: Terms }
  | ({ readonly type: 'reported' } & PendingReport);

type Input = { readonly change: PolicyChange; readonly begin: Begin };

const PAUSE_MS = 400;
const LONG_PAUSE_MS = 2_500;
const LONG_TEXT = 1_000_000;
const RETRY_MS = 3_000;
/** A dry run of a long text takes the node seconds. */
const LONG_RETRY_MS = 30_000;
const isLong = (change: PolicyChange) => change.kind === 'text' && change.text.length > LONG_TEXT;
const notProvided = () => Promise.reject(new Error('the draft chart has no implementation of this actor'));

const draftSetup = setup({
  types: chartTypes<Context, Event, Input>(),
  actors: {
    judge: fromPromise<Judgement, PolicyChange>(notProvided),
    apply: fromPromise<Applied, { readonly change: PolicyChange; readonly terms: Terms }>(notProvided),
  },
  delays: {
    /** The pause in typing after which the text is judged. */
    pause: ({ context: { change } }) => (isLong(change) ? LONG_PAUSE_MS : PAUSE_MS),
    retry: ({ context: { change } }) => (isLong(change) ? LONG_RETRY_MS : RETRY_MS),
  },
  guards: {
    isLong: ({ context: { change } }) => isLong(change),
    isOutdated: (_, { error }: { error: unknown }) => error instanceof ApiFailure && error.status === 412,
    isPending: ({ context: { terms, applied } }) => terms?.confirmWithin != null && applied?.generation != null,
    isReverted: ({ context: { applied } }, { pending: { reverted } }: PendingReport) =>
      reverted !== null && reverted.generation === applied?.generation,
    // The confirmation makes a new generation, so a report from before the write is not taken for a
    // confirmation.
    isKept: ({ context: { applied } }, { generation, pending: { pending } }: PendingReport) =>
      generation > (applied?.generation ?? Number.POSITIVE_INFINITY) && pending?.generation !== applied?.generation,
  },
  actions: {
    noteChange: assign((_, { change }: { change: PolicyChange }) => ({
      change,
      failure: null,
      terms: null,
      applied: null,
      revertReason: null,
    })),
    noteJudgement: assign((_, { judgement }: { judgement: Judgement | null }) => ({ judgement, failure: null })),
    noteFailure: assign((_, { failure }: { failure: unknown }) => ({ failure })),
    noteTerms: assign((_, { terms }: { terms: Terms }) => ({ terms, failure: null })),
    noteApplied: assign((_, { applied }: { applied: Applied }) => ({ applied, failure: null })),
    noteRevert: assign((_, { pending: { reverted } }: PendingReport) => ({
      revertReason: reverted?.reason ?? null,
    })),
  },
});

/** Judges the change; a sound one goes on to `target`. */
const judgedFor = (target: 'sound' | 'reviewing') =>
  ({
    src: 'judge',
    input: ({ context }: { context: Context }) => context.change,
    onDone: [
      {
        guard: ({ event }: { event: { output: Judgement } }) => event.output.isSound,
        target,
        actions: {
          type: 'noteJudgement',
          params: ({ event }: { event: { output: Judgement } }) => ({ judgement: event.output }),
        },
      },
      {
        target: 'faulty',
        actions: {
          type: 'noteJudgement',
          params: ({ event }: { event: { output: Judgement } }) => ({ judgement: event.output }),
        },
      },
    ],
    onError: {
      target: 'unanswered',
      actions: {
        type: 'noteFailure',
        params: ({ event }: { event: { error: unknown } }) => ({ failure: event.error }),
      },
    },
  }) as const;

/**
 * A draft of a policy: edited, judged by dry runs of the node, reviewed, applied, and confirmed or reverted.
 * Only the node judges; an edit cancels the dry run of the text before it.
 */
export const draftChart = draftSetup.createMachine({
  id: 'draft',
  context: ({ input: { begin, change } }) => ({
    begin,
    change,
    judgement: null,
    failure: null,
    terms: null,
    applied: null,
    revertReason: null,
  }),
  initial: 'choosing',
  on: {
    edited: { target: '.editing', actions: { type: 'noteChange', params: ({ event }) => event } },
    discarded: {
      target: '.clean',
      actions: [
        { type: 'noteChange', params: ({ event }) => event },
        { type: 'noteJudgement', params: { judgement: null } },
      ],
    },
  },
  states: {
    choosing: {
      always: [
        { guard: ({ context }) => context.begin === 'review', target: 'preparing' },
        { guard: ({ context }) => context.begin === 'edited', target: 'editing' },
        { target: 'clean' },
      ],
    },
    /**
     * The text is the stored one. It is judged once, for its warnings, unless that would cost the node much.
     */
    clean: {
      on: { review_requested: 'preparing' },
      initial: 'choosing',
      states: {
        choosing: { always: [{ guard: 'isLong', target: 'known' }, { target: 'judging' }] },
        judging: {
          invoke: {
            src: 'judge',
            input: ({ context }) => context.change,
            onDone: {
              target: 'known',
              actions: { type: 'noteJudgement', params: ({ event }) => ({ judgement: event.output }) },
            },
            onError: 'known',
          },
        },
        known: {},
      },
    },
    editing: { after: { pause: 'judging' }, on: { review_requested: 'preparing' } },
    judging: { on: { review_requested: 'preparing' }, invoke: judgedFor('sound') },
    sound: { on: { review_requested: 'reviewing' } },
    faulty: {},
    unanswered: { after: { retry: 'judging' }, on: { review_requested: 'preparing' } },
    /** Judged for the review, which opens with the result. */
    preparing: { on: { review_left: 'judging' }, invoke: judgedFor('reviewing') },
    /** Judged again because the person chose another form of the change in the review. */
    rejudging: { on: { review_left: 'judging' }, invoke: judgedFor('reviewing') },
    reviewing: {
      on: {
        review_left: 'sound',
        change_chosen: { target: 'rejudging', actions: { type: 'noteChange', params: ({ event }) => event } },
        apply_requested: { target: 'applying', actions: { type: 'noteTerms', params: ({ event }) => event } },
      },
    },
    applying: {
      // The text that is being written must not change, and its write cannot be taken back.
      on: { edited: {}, discarded: {} },
      invoke: {
        src: 'apply',
        input: ({ context: { change, terms } }) => ({
          change,
          terms: terms ?? { confirmWithin: null, comment: '', overrides: [] },
        }),
        onDone: {
          target: 'applied',
          actions: { type: 'noteApplied', params: ({ event }) => ({ applied: event.output }) },
        },
        onError: [
          {
            guard: { type: 'isOutdated', params: ({ event }) => event },
            target: 'conflicting',
            actions: { type: 'noteFailure', params: ({ event }) => ({ failure: event.error }) },
          },
          {
            target: 'reviewing',
            actions: { type: 'noteFailure', params: ({ event }) => ({ failure: event.error }) },
          },
        ],
      },
    },
    applied: { always: [{ guard: 'isPending', target: 'awaiting_confirmation' }, { target: 'kept' }] },
    /** Another write has replaced the text from which the draft was made. */
    conflicting: { on: { review_left: 'sound' } },
    awaiting_confirmation: {
      on: {
        edited: {},
        discarded: {},
        reported: [
          {
            guard: { type: 'isReverted', params: ({ event }) => event },
            target: 'reverted',
            actions: { type: 'noteRevert', params: ({ event }) => event },
          },
          { guard: { type: 'isKept', params: ({ event }) => event }, target: 'kept' },
        ],
      },
    },
    kept: {},
    reverted: { on: { acknowledged: 'editing' } },
  },
});
