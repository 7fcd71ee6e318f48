import { assign, fromPromise, setup } from 'xstate';
import type { Message, Needs } from '#bus/bus-messages.js';
import type {
  PolicyChecked,
  PolicyDeleted,
  PolicyOutcome,
  PolicyWrite,
  PolicyWritten,
  Refusal,
} from '#bus/policy-requests.js';
import type { Lookups } from '#contracts/dns-lookups.js';
import type { InspectionImage } from '#contracts/inspection-image.js';
import type { PolicyPut, PolicyRecord } from '#contracts/policy-record.js';
import type { Program } from '#contracts/program.js';
import type { Proof, SampleOrPromise } from '#contracts/proof-types.js';
import { notProvided } from './failure.js';
import { refusalOf } from './refusal.js';

/** The policy that decides about packets now, or after a flip. */
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

/** One atomic batch for the store. */
export type PolicyChange = {
  readonly put?: PolicyPut;
  readonly activate?: string;
  readonly deactivate?: string;
  readonly remove?: string;
  readonly generation: number;
};

/** A write without a refusal: the change of the store, the program to activate, and the answer. */
export type PreparedWrite = {
  readonly kind: 'prepared_write';
  readonly change: PolicyChange;
  /** Null if the write does not change the program in force. */
  readonly activation: {
    readonly program: Program;
    readonly sample: SampleOrPromise;
    readonly inForce: PolicyInForce;
  } | null;
  readonly outcome: PolicyWritten | PolicyDeleted | PolicyChecked;
};

export type WriteInput = {
  readonly id: string;
  readonly write: PolicyWrite;
  /** Whether there is a dataplane that enforces. */
  readonly enforced: boolean;
};
export type WriteOutput =
  /** The program in force is the same after the write as before it. */
  | { readonly kind: 'ended' }
  | { readonly kind: 'activated'; readonly inForce: PolicyInForce; readonly epoch: number | null }
  /** Stored, but not flipped. It is not answered yet. */
  | { readonly kind: 'unflipped'; readonly inForce: PolicyInForce; readonly outcome: PolicyOutcome };

type WriteContext = WriteInput & {
  readonly prepared: PreparedWrite | null;
  readonly lines: number;
  readonly proof: Proof | null;
  readonly output: WriteOutput;
};
/**
 * Sent by the chart of the policy when the time of the write is over. It has no effect after the commit has
 * begun.
 */
export type WriteExpired = { readonly type: 'write.expired'; readonly refusal: Refusal };

const write = setup({
  types: {
    context: {} as WriteContext,
    input: {} as WriteInput,
    output: {} as WriteOutput,
    events: {} as WriteExpired,
  },
  actors: {
    /** Reads, validates and compiles a write and decides about it. Stores and stages nothing. */
    prepare: fromPromise<PreparedWrite | Refusal, { write: PolicyWrite }>(notProvided('prepare')),
    /** Fills the idle slot, and proves it. */
    stage: fromPromise<
      { lines: number; proof: Proof },
      { program: Program; sample: SampleOrPromise; generation: number }
    >(notProvided('stage')),
    unstage: fromPromise<void, { generation: number }>(notProvided('unstage')),
    commit: fromPromise<void, { change: PolicyChange }>(notProvided('commit')),
    flip: fromPromise<{ epoch: number }, { generation: number }>(notProvided('flip')),
  },
  actions: {
    publish: (_, _params: { message: Message | null }) => {},
    notePrepared: assign((_, { output }: { output: PreparedWrite | Refusal }) => ({
      prepared: output.kind === 'prepared_write' ? output : null,
    })),
    noteStaged: assign((_, { lines, proof }: { lines: number; proof: Proof }) => ({ lines, proof })),
    noteActivated: assign(({ context }, { epoch }: { epoch: number | null }) => ({
      output: { kind: 'activated' as const, inForce: activationOf(context).inForce, epoch },
    })),
    noteUnflipped: assign(({ context }) => ({
      output: { kind: 'unflipped' as const, inForce: activationOf(context).inForce, outcome: outcomeOf(context) },
    })),
  },
  guards: {
    isRefused: (_, { output }: { output: PreparedWrite | Refusal }) => output.kind === 'refused',
    activates: ({ context }) => context.prepared?.activation != null,
    mustStage: ({ context }) => context.enforced && context.prepared?.activation != null,
    isDryRun: ({ context }) => context.write.dryRun,
  },
});

type InContext = { readonly context: WriteContext };
type Failed = { readonly event: { readonly error: unknown } };
type Published = { readonly message: Message };

const answered = ({ id }: WriteContext, outcome: PolicyOutcome): Published => ({
  message: { type: 'policy.write_answered', id, outcome },
});
const done = ({ context }: InContext): Published => answered(context, outcomeOf(context));
const failed = ({ context, event }: InContext & Failed): Published =>
  answered(context, refusalOf(event.error, 'feature_unavailable'));
const notStaged = ({ context, event }: InContext & Failed): Published =>
  answered(context, refusalOf(event.error, 'dataplane_unavailable'));
const notStored = ({ context, event }: InContext & Failed): Published =>
  answered(context, refusalOf(event.error, 'store_unavailable'));
const refused = ({ context, event }: InContext & { event: { output: PreparedWrite | Refusal } }) =>
  event.output.kind === 'refused' ? answered(context, event.output) : { message: null };

function outcomeOf({ prepared, lines: programLines, proof }: WriteContext): PolicyOutcome {
  const { outcome } = present(prepared);
  switch (outcome.kind) {
    case 'checked':
      return { ...outcome, programLines, proof };
    case 'written':
      return { ...outcome, proof };
    case 'deleted':
      return outcome;
  }
}

const activationOf = ({ prepared }: WriteContext) => present(prepared?.activation);
const generationOf = ({ context }: InContext) => ({ generation: present(context.prepared).change.generation });

function present<T>(value: T | null | undefined): T {
  if (value == null) throw new Error('a write in progress has no prepared change');
  return value;
}

const expiringTo = <Target extends string>(target: Target) =>
  ({
    'write.expired': {
      target,
      actions: {
        type: 'publish',
        params: ({ context, event }: InContext & { event: WriteExpired }) => answered(context, event.refusal),
      },
    },
  }) as const;

/**
 * One write of a policy. A failure before the commit changes nothing. Nothing is rolled back after the
 * commit.
 */
export const writeChart = write.createMachine({
  id: 'write',
  context: ({ input }) => ({ ...input, prepared: null, lines: 0, proof: null, output: { kind: 'ended' } }),
  output: ({ context }) => context.output,
  initial: 'preparing',
  states: {
    preparing: {
      invoke: {
        id: 'prepare',
        src: 'prepare',
        input: ({ context }) => context,
        onDone: [
          {
            guard: { type: 'isRefused', params: ({ event }) => event },
            target: 'ended',
            actions: { type: 'publish', params: refused },
          },
          { target: 'prepared', actions: { type: 'notePrepared', params: ({ event }) => event } },
        ],
        onError: { target: 'ended', actions: { type: 'publish', params: failed } },
      },
      on: expiringTo('ended'),
    },
    prepared: {
      always: [
        { guard: 'mustStage', target: 'staging' },
        { guard: 'isDryRun', target: 'ended', actions: { type: 'publish', params: done } },
        { target: 'committing' },
      ],
    },
    staging: {
      invoke: {
        id: 'stage',
        src: 'stage',
        input: ({ context }) => ({ ...activationOf(context), ...generationOf({ context }) }),
        onDone: [
          {
            guard: 'isDryRun',
            target: 'unstaging',
            actions: [
              { type: 'noteStaged', params: ({ event }) => event.output },
              { type: 'publish', params: done },
            ],
          },
          { target: 'committing', actions: { type: 'noteStaged', params: ({ event }) => event.output } },
        ],
        onError: { target: 'unstaging', actions: { type: 'publish', params: notStaged } },
      },
      on: expiringTo('unstaging'),
    },
    unstaging: {
      invoke: { id: 'unstage', src: 'unstage', input: generationOf, onDone: 'ended', onError: 'ended' },
    },
    committing: {
      invoke: {
        id: 'commit',
        src: 'commit',
        input: ({ context }) => ({ change: present(context.prepared).change }),
        onDone: [
          { guard: 'mustStage', target: 'flipping' },
          {
            guard: 'activates',
            target: 'ended',
            actions: [
              { type: 'noteActivated', params: { epoch: null } },
              { type: 'publish', params: done },
            ],
          },
          { target: 'ended', actions: { type: 'publish', params: done } },
        ],
        onError: [
          { guard: 'mustStage', target: 'unstaging', actions: { type: 'publish', params: notStored } },
          { target: 'ended', actions: { type: 'publish', params: notStored } },
        ],
      },
    },
    flipping: {
      invoke: {
        id: 'flip',
        src: 'flip',
        input: generationOf,
        onDone: {
          target: 'ended',
          actions: [
            { type: 'noteActivated', params: ({ event }) => event.output },
            { type: 'publish', params: done },
          ],
        },
        onError: { target: 'ended', actions: 'noteUnflipped' },
      },
    },
    ended: { type: 'final' },
  },
});
