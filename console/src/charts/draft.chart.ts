import { assign, fromPromise, setup } from 'xstate';
import { ApiFailure, type Schemas } from '../api/client.js';
import { chartTypes } from './chart-types.js';

/**
 * A text that is made only when it is read. An editor can have a text of millions of characters, so the page
 * does not copy it for each change.
 */
export type LazyText = { readonly length: number; toString(): string };

/**
 * A change of the stored policies that the user prepares on the page. `id`: the id of the policy; null for a
 * new one.
 */
export type PolicyChange =
  | {
      readonly kind: 'text';
      readonly id: string | null;
      readonly text: LazyText;
      /**
       * False: the policy is only stored, and not put in force. Null: the mode of the policy decides whether
       * it is put in force.
       */
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

/** The result of the check of a draft by the node (a dry run of its write). */
export type Judgement =
  | { readonly isSound: true; readonly result: Schemas['PolicyDryRun']; readonly warnings: readonly DraftProblem[] }
  | { readonly isSound: false; readonly problems: readonly DraftProblem[] };

/** The options with which the user applies a change. */
export type Terms = {
  /**
   * The time in seconds after which the change is reverted unless it is confirmed; null: it needs no
   * confirmation.
   */
  readonly confirmWithin: number | null;
  /**
   * In a cluster: `share` is the percentage of the nodes that enforce the change first, and `hold` is the
   * time in seconds until the other nodes follow.
   */
  readonly rollout?: { readonly share: number; readonly hold: number } | null;
  readonly comment: string;
  /** The ids of the assertions (tests of the policy) that the change may break. */
  readonly overrides: readonly string[];
};

/**
 * A change that the node has written. `generation`: the number of its activation; null if the policy in force
 * stayed the same.
 */
export type Applied = {
  readonly generation: number | null;
  readonly revision: number | null;
  readonly at: number;
};

/**
 * The report of the node about its generation (the number of the latest activation of a policy) and about
 * unconfirmed changes.
 */
export type PendingReport = {
  readonly generation: number;
  readonly pending: Schemas['PendingChange'];
};

type Begin = 'clean' | 'edited' | 'review';
type Context = {
  readonly begin: Begin;
  readonly change: PolicyChange;
  readonly judgement: Judgement | null;
  /** The error of the last request that failed. */
  readonly failure: unknown;
  readonly terms: Terms | null;
  readonly applied: Applied | null;
  /** The reason why the node reverted the change. */
  readonly revertReason: string | null;
};

type Event =
  | { readonly type: 'edited'; readonly change: PolicyChange }
  | { readonly type: 'discarded'; readonly change: PolicyChange }
  /** The text from which the draft was made is now stored as another revision, with this ETag. */
  | { readonly type: 'rebased'; readonly etag: string | null }
  | { readonly type: 'review_requested' | 'review_left' }
  /** In the review, the user has chosen another form of the change, for example to store the policy only. */
  | { readonly type: 'change_chosen'; readonly change: PolicyChange }
  | { readonly type: 'apply_requested'; readonly terms: Terms }
  | ({ readonly type: 'reported' } & PendingReport);

type Input = { readonly change: PolicyChange; readonly begin: Begin };

const PAUSE_MS = 400;
const LONG_PAUSE_MS = 2_500;
const LONG_TEXT = 1_000_000;
const RETRY_MS = 3_000;
/**
 * The pause before a failed check of a long text is repeated: the node needs several seconds for each check
 * (dry run).
 */
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
    /** The page sends a text to the node for a check after the user has not typed for this time. */
    pause: ({ context: { change } }) => (isLong(change) ? LONG_PAUSE_MS : PAUSE_MS),
    retry: ({ context: { change } }) => (isLong(change) ? LONG_RETRY_MS : RETRY_MS),
  },
  guards: {
    isLong: ({ context: { change } }) => isLong(change),
    isOutdated: (_, { error }: { error: unknown }) => error instanceof ApiFailure && error.status === 412,
    isPending: ({ context: { terms, applied } }) => terms?.confirmWithin != null && applied?.generation != null,
    isReverted: ({ context: { applied } }, { pending: { reverted } }: PendingReport) =>
      reverted !== null && reverted.generation === applied?.generation,
    // A confirmation increases the generation number. So a report that the node sent before the write does
    // not look like the confirmation of this change.
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
    noteEtag: assign(({ context }, { etag }: { etag: string | null }) => ({ change: { ...context.change, etag } })),
    noteJudgement: assign((_, { judgement }: { judgement: Judgement | null }) => ({ judgement, failure: null })),
    noteFailure: assign((_, { failure }: { failure: unknown }) => ({ failure })),
    noteTerms: assign((_, { terms }: { terms: Terms }) => ({ terms, failure: null })),
    noteApplied: assign((_, { applied }: { applied: Applied }) => ({ applied, failure: null })),
    noteRevert: assign((_, { pending: { reverted } }: PendingReport) => ({
      revertReason: reverted?.reason ?? null,
    })),
  },
});

/**
 * Returns the `invoke` of the actor that makes the node check the change. If the node finds no problem, the
 * chart enters the state `target`.
 */
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
 * The states of the draft of a policy: the user edits it, the node checks it by dry runs, the user reviews
 * and applies it, and the change is confirmed or reverted. An edit cancels the dry run of the earlier text.
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
    // The text is the same as before, so its check and its review stay valid.
    rebased: { actions: { type: 'noteEtag', params: ({ event }) => event } },
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
     * The text equals the stored text. The node checks it once, to show its warnings, unless the text is so
     * long that a check costs the node much time.
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
    /** The node checks the change for the review. The review opens with the result. */
    preparing: { on: { review_left: 'judging' }, invoke: judgedFor('reviewing') },
    /** The node checks the change again, because the user chose another form of the change in the review. */
    rejudging: { on: { review_left: 'judging' }, invoke: judgedFor('reviewing') },
    reviewing: {
      on: {
        review_left: 'sound',
        change_chosen: { target: 'rejudging', actions: { type: 'noteChange', params: ({ event }) => event } },
        apply_requested: { target: 'applying', actions: { type: 'noteTerms', params: ({ event }) => event } },
      },
    },
    applying: {
      // Ignore edits now: the text that the node is writing must not change, and the page cannot cancel the
      // write.
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
    /** Another client has written the policy, so the draft was made from a text that is no longer stored. */
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
    reverted: {},
  },
});
