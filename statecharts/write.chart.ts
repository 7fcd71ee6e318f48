import { assign, fromPromise, setup } from 'xstate';
import type { Message, Needs } from '#bus/bus-messages.js';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import type { Selector } from '#contracts/policy/policy-model.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import type { PolicyChange, PolicyRecord } from '#contracts/policy/policy-record.js';
import type {
  PolicyChecked,
  PolicyDeleted,
  PolicyOutcome,
  PolicyWrite,
  PolicyWritten,
} from '#contracts/policy/policy-write.js';
import type { Program } from '#contracts/policy/program.js';
import type { Proof, SamplesOrPromise } from '#contracts/policy/proof-types.js';
import type { Refusal } from '#contracts/refusal.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import { notProvided } from './failure.js';
import { refusalOf } from './refusal.js';

/** The policy that is in force now, or that the next activation (flip) puts in force. */
export type PolicyInForce = {
  /**
   * The active policy record. Null if no policy is active; `policy.fallback` of the configuration then
   * decides.
   */
  readonly record: PolicyRecord | null;
  readonly generation: number;
  readonly needs: Needs;
  readonly lookups: Lookups;
  readonly inspection: InspectionImage;
  /** Names of the integrations that selectors of the policy use. */
  readonly integrations: readonly string[];
  readonly selectors: readonly Selector[];
  /** The selectors that were never resolved when the policy was compiled (D19a). */
  readonly unresolved: readonly Selector[];
};

/** A compiled policy, with the data for other parts of the node that must become active at the same time. */
export type CompiledPolicy = {
  readonly program: Program;
  readonly samples: SamplesOrPromise;
  /**
   * Whether the program has rules for selector combinations that match no address now (former members). These
   * rules can make the program too large.
   */
  readonly hasFormer: boolean;
  readonly inForce: PolicyInForce;
};

/**
 * The prepared form of a write that is not refused: the change of the store, the compiled policy to put in
 * force, and the answer.
 */
export type PreparedWrite = {
  readonly kind: 'prepared_write';
  readonly change: PolicyChange;
  /** Null if the write does not change the policy in force. */
  readonly compiled: CompiledPolicy | null;
  readonly outcome: PolicyWritten | PolicyDeleted | PolicyChecked;
};

export type WriteInput = {
  readonly id: string;
  readonly write: PolicyWrite;
  /** Whether the configuration has a dataplane section, so that the dataplane enforces the policy. */
  readonly enforced: boolean;
  /** Whether the node is in a cluster: its members rehearse the write before the commit. */
  readonly shared: boolean;
  /**
   * Whether this chart ends without a response if another node has changed the policies in the meantime. The
   * policy chart then prepares the write again.
   */
  readonly mayRepeat: boolean;
};
/**
 * The result of the check of a write by the other cluster members. `behind`: the members that did not report
 * in time.
 */
type Rehearsed = { readonly members: number; readonly behind: readonly string[] };
export type WriteOutput =
  /** The write ended without changing the policy in force. */
  | { readonly kind: 'ended' }
  /**
   * Another node changed the policies during the write, so nothing was stored. The request has no response
   * yet.
   */
  | { readonly kind: 'lost_race' }
  | { readonly kind: 'activated'; readonly inForce: PolicyInForce; readonly epoch: number | null }
  /**
   * The policy is stored, but the flip (activation of a staged policy) failed. The write chart has not
   * answered the request, so the policy chart must answer the request.
   */
  | { readonly kind: 'unflipped'; readonly inForce: PolicyInForce; readonly outcome: PolicyOutcome };

/**
 * The result of staging. `compiled`: the staged policy. It differs from the prepared policy if the prepared
 * policy was too large. `proof` is null on a node without a dataplane.
 */
export type Staged = {
  readonly compiled: CompiledPolicy;
  readonly lines: number;
  readonly proof: Proof | null;
  readonly rehearsed: Rehearsed | null;
};
export type StageInput = {
  readonly compiled: CompiledPolicy;
  readonly change: PolicyChange;
  readonly write: PolicyWrite;
};

type WriteContext = WriteInput & {
  readonly prepared: PreparedWrite | null;
  readonly lines: number;
  readonly proof: Proof | null;
  readonly rehearsed: Rehearsed | null;
  /** The revision of etcd after the commit; null on a single node. */
  readonly revision: number | null;
  readonly output: WriteOutput;
};
/**
 * The policy chart sends this event when the activation timeout of the write has passed. The event has no
 * effect after the commit has begun.
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
    /**
     * Reads, validates and compiles the policy of a write, and determines the changes of the store. Stores
     * nothing and stages nothing.
     */
    prepare: fromPromise<PreparedWrite | Refusal, { write: PolicyWrite }>(notProvided('prepare')),
    /**
     * Writes the compiled policy to the idle program slot of the datapath, and proves it. If the program is
     * too large, compiles the policy again without rules for selector combinations that match no address now.
     * In a cluster, also collects the votes of the other members.
     */
    stage: fromPromise<Staged, StageInput>(notProvided('stage')),
    unstage: fromPromise<void, { generation: number }>(notProvided('unstage')),
    /** Resolves with the revision of etcd; null on a single node. */
    commit: fromPromise<number | null, { change: PolicyChange }>(notProvided('commit')),
    flip: fromPromise<{ epoch: number }, { generation: number }>(notProvided('flip')),
  },
  actions: {
    publish: (_, _params: { message: Message | null }) => {},
    notePrepared: assign((_, { output }: { output: PreparedWrite | Refusal }) => ({
      prepared: output.kind === 'prepared_write' ? output : null,
    })),
    noteStaged: assign(({ context }, { compiled, lines, proof, rehearsed }: Staged) => ({
      prepared: { ...present(context.prepared), compiled },
      lines,
      proof,
      rehearsed,
    })),
    noteCommitted: assign((_, { output }: { output: number | null }) => ({ revision: output })),
    noteActivated: assign(({ context }, { epoch }: { epoch: number | null }) => ({
      output: { kind: 'activated' as const, inForce: compiledPolicyOf(context).inForce, epoch },
    })),
    noteLostRace: assign({ output: { kind: 'lost_race' as const } }),
    noteUnflipped: assign(({ context }) => ({
      output: { kind: 'unflipped' as const, inForce: compiledPolicyOf(context).inForce, outcome: outcomeOf(context) },
    })),
  },
  guards: {
    isRefused: (_, { output }: { output: PreparedWrite | Refusal }) => output.kind === 'refused',
    activates: ({ context }) => context.prepared?.compiled != null,
    mustStage: ({ context }) => (context.enforced || context.shared) && context.prepared?.compiled != null,
    mustFlip: ({ context }) => context.enforced && context.prepared?.compiled != null,
    isDryRun: ({ context }) => context.write.dryRun,
    hasLostRace: ({ context }, { error }: { error: unknown }) =>
      context.mayRepeat && refusalOf(error, 'store_unavailable').code === 'write_conflict',
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

function outcomeOf({ prepared, lines: programLines, proof, rehearsed, revision }: WriteContext): PolicyOutcome {
  const { outcome } = present(prepared);
  const warnings = [...outcome.warnings, ...behindWarnings(rehearsed)];
  const cluster = revision === null ? {} : { cluster: { revision, nodes: nodesOf(rehearsed) } };
  switch (outcome.kind) {
    case 'checked':
      return { ...outcome, programLines, proof };
    case 'written':
      return { ...outcome, warnings, proof, ...cluster };
    case 'deleted':
      return { ...outcome, warnings, ...cluster };
  }
}

function nodesOf(rehearsed: Rehearsed | null): { readonly ready: number; readonly members: number } | null {
  return rehearsed && { ready: rehearsed.members - rehearsed.behind.length, members: rehearsed.members };
}

function behindWarnings(rehearsed: Rehearsed | null): readonly Warning[] {
  if (rehearsed === null || rehearsed.behind.length === 0) return [];
  const message = `These nodes did not report in time, and put the policy in force later: ${rehearsed.behind.join(', ')}.`;
  return [{ pointer: '', code: 'nodes_behind', message }];
}

const compiledPolicyOf = ({ prepared }: WriteContext) => present(prepared?.compiled);
const generationOf = ({ context }: InContext) => ({ generation: present(context.prepared).change.generation });

function present<T>(value: T | null | undefined): T {
  if (value == null) throw new Error('write a policy: the change was not prepared before');
  return value;
}

const lostRace = { type: 'hasLostRace', params: ({ event }: Failed) => event } as const;

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
 * Runs one write of a policy. If a step before the commit fails, the stored policy and the policy in force
 * stay unchanged. After the commit, nothing is rolled back.
 */
export const writeChart = write.createMachine({
  id: 'write',
  context: ({ input }) => ({
    ...input,
    prepared: null,
    lines: 0,
    proof: null,
    rehearsed: null,
    revision: null,
    output: { kind: 'ended' },
  }),
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
        onError: [
          { guard: lostRace, target: 'ended', actions: 'noteLostRace' },
          { target: 'ended', actions: { type: 'publish', params: failed } },
        ],
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
        input: ({ context }): StageInput => ({
          compiled: compiledPolicyOf(context),
          change: present(context.prepared).change,
          write: context.write,
        }),
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
        onError: [
          { guard: lostRace, target: 'unstaging', actions: 'noteLostRace' },
          { target: 'unstaging', actions: { type: 'publish', params: notStaged } },
        ],
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
          { guard: 'mustFlip', target: 'flipping', actions: { type: 'noteCommitted', params: ({ event }) => event } },
          {
            guard: 'activates',
            target: 'ended',
            actions: [
              { type: 'noteCommitted', params: ({ event }) => event },
              { type: 'noteActivated', params: { epoch: null } },
              { type: 'publish', params: done },
            ],
          },
          {
            target: 'ended',
            actions: [
              { type: 'noteCommitted', params: ({ event }) => event },
              { type: 'publish', params: done },
            ],
          },
        ],
        onError: [
          { guard: lostRace, target: 'unstaging', actions: 'noteLostRace' },
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
