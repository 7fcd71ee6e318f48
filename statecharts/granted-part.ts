import { assign, type EventObject, forwardTo, fromCallback, fromPromise } from 'xstate';
import type { Fact, Needs } from '#bus/bus-messages.js';
import { backoffMs } from '#contracts/backoff.js';
import { codeOf, notProvided, sentenceOf } from './failure.js';
import { type PartName, reports, type Troubles } from './readiness.js';

/**
 * The states that the statecharts of the DNS proxy and of the service plane (TLS and HTTP inspection) have in
 * common. In this file, "the part" is one of these two. The part listens in threads, decides by the policy in
 * force, and uses the addresses that the datapath has learned from DNS (grants). A node need not have the
 * part.
 */

export type GrantedInput = {
  readonly configured: boolean;
  /** Whether the policy in force needs this part (the DNS proxy or the service plane). */
  readonly needed: boolean;
  /** Whether the configuration has a `dataplane` section; without a dataplane, no address has a grant. */
  readonly enforced: boolean;
};
export type GrantedContext = GrantedInput & {
  readonly isEnforcing: boolean;
  readonly hasGrants: boolean;
  readonly attempts: number;
  readonly trouble: Troubles;
  /** The code of the latest error; null if there was no error, or if the error had no code. */
  readonly failureCode: string | null;
};
export type GrantedEvent =
  | Extract<Fact, { type: 'policy.activated' | 'dataplane.enforcing' | 'dataplane.lost' | 'dataplane.closed' }>
  | { readonly type: 'settings.changed' };
export type PolicyActivated = Extract<Fact, { type: 'policy.activated' }>;

/**
 * Returns the initial context of the chart. A restarted part has missed the message `dataplane.enforcing`, so
 * its context has `isEnforcing` true from the start.
 */
export const initialContext = <Input extends GrantedInput>(
  input: Input,
  isRestart: boolean,
): Input & GrantedContext => ({
  ...input,
  isEnforcing: isRestart,
  hasGrants: false,
  attempts: 0,
  trouble: {},
  failureCode: null,
});

export const GRANTED_ACTORS = {
  /**
   * Starts the threads of the DNS proxy or service plane (TLS and HTTP inspection) and makes them listen.
   * Before that, closes the threads and sockets that an earlier call has opened.
   */
  open: fromPromise<void>(notProvided('open')),
  /**
   * Connects the threads of the DNS proxy or service plane (TLS and HTTP inspection) to the grants of the
   * datapath.
   */
  connectGrants: fromPromise<void>(notProvided('connectGrants')),
  /** Resolves when an IP address or an interface of the node has changed. */
  addressChange: fromPromise<void>(notProvided('addressChange')),
  watch: fromCallback<EventObject>(notProvided('watch')),
  /**
   * Applies the new settings of each change request that it receives, and answers the request. After a
   * success, sends `settings.changed`.
   */
  settings: fromCallback<EventObject>(notProvided('settings')),
};

type Context = { readonly context: GrantedContext };

/**
 * Returns the actions that the charts of the DNS proxy and of the service plane have in common. `C` is the
 * type of the chart's context, and `E` the type of its events.
 */
export function grantedActions<C extends GrantedContext, E extends EventObject>(part: PartName) {
  const changing = <P = undefined>(change: (context: GrantedContext, params: P) => Partial<GrantedContext>) =>
    assign<C, E, P, E, never>(({ context }, params) => change(context, params) as Partial<C>);
  return {
    forwardToSettings: forwardTo<C, E, undefined, E>('settings'),
    noteEnforcing: changing(() => ({ isEnforcing: true })),
    noteLost: changing(() => ({ isEnforcing: false, hasGrants: false })),
    noteGrants: changing(() => ({ hasGrants: true })),
    noteTrouble: changing<{ trouble: string; code: string | null }>((_, { trouble, code }) => ({
      trouble: { [part]: trouble },
      failureCode: code,
    })),
    countAttempt: changing(({ attempts }) => ({ attempts: attempts + 1 })),
    forgetTrouble: changing(() => ({ trouble: {}, attempts: 0, failureCode: null })),
  };
}

export const GRANTED_GUARDS = {
  isConfigured: ({ context }: Context) => context.configured,
  isNeededFromTheStart: ({ context }: Context) => context.needed,
  isNeeded: (_: unknown, params: { needed: boolean }) => params.needed,
  /** True if the part cannot listen because no interface of the node has the configured listen address. */
  lacksAddress: ({ context }: Context) => context.failureCode === 'EADDRNOTAVAIL',
  mayConnect: ({ context }: Context) => context.enforced && context.isEnforcing && !context.hasGrants,
  lacksGrants: ({ context }: Context) => context.enforced && !context.hasGrants,
};

export const GRANTED_DELAYS = {
  backoff: ({ context }: Context) => backoffMs(context.attempts - 1, 200, 30_000),
  reconnect: 500,
};

type Failed = { readonly event: { readonly error: unknown } };
export const noteFailure = {
  type: 'noteTrouble',
  params: ({ event: { error } }: Failed) => ({ trouble: sentenceOf(error), code: codeOf(error) }),
} as const;
const noteDeath = {
  type: 'noteTrouble',
  params: ({ event: { reason } }: { readonly event: { readonly reason: string } }) => ({ trouble: reason, code: null }),
} as const;

const SETTINGS = {
  id: 'settings',
  src: 'settings',
  onError: { target: '.backing_off', actions: noteFailure },
} as const;

/** Maps event types to the actions that they cause. */
type Facts = Readonly<Record<string, unknown>>;
type Caused<F extends Facts> = { readonly [E in keyof F]: { readonly actions: F[E] } };
type Redeciding<F extends Facts> = {
  readonly [E in keyof F]: { readonly actions: F[E]; readonly target: '.deciding' };
};

const caused = <F extends Facts>(facts: F) =>
  Object.fromEntries(Object.entries(facts).map(([type, actions]) => [type, { actions }])) as Caused<F>;
const redeciding = <F extends Facts>(facts: F) =>
  Object.fromEntries(
    Object.entries(facts).map(([type, actions]) => [type, { actions, target: '.deciding' }]),
  ) as Redeciding<F>;

const ON_DATAPLANE = {
  'dataplane.enforcing': 'noteEnforcing',
  'dataplane.lost': 'noteLost',
  'dataplane.closed': 'noteLost',
} as const;

type Own<
  P extends PartName,
  F extends Facts,
  Died extends string,
  Change extends string,
  Note,
  Use,
  Watching,
  Deciding,
  States,
> = {
  readonly part: P;
  readonly need: keyof Needs;
  /** The texts in the readiness report for the states that the DNS proxy and the service plane share. */
  readonly details: Readonly<
    Record<
      | 'needed_but_absent'
      | 'binding'
      | 'backing_off'
      | 'awaiting_policy'
      | 'connecting'
      | 'disconnected'
      | 'awaiting_dataplane',
      string
    >
  >;
  /** The action that stores which policy is active in the context of the chart. */
  readonly notePolicy: Note;
  /**
   * The action that makes the threads of the DNS proxy or service plane (TLS and HTTP inspection) use the
   * policy in force.
   */
  readonly use: Use;
  /**
   * Further event types and their actions, for all states with a configured DNS proxy or service plane (TLS
   * and HTTP inspection).
   */
  readonly facts: F;
  /**
   * The type of the event that the DNS proxy or service plane (TLS and HTTP inspection) sends when its
   * threads died of an error.
   */
  readonly died: Died;
  /**
   * The type of the request with which a reload changes the settings of the DNS proxy or service plane (TLS
   * and HTTP inspection).
   */
  readonly change: Change;
  /**
   * Actors that the chart invokes in all states, if the configuration has the DNS proxy or service plane (TLS
   * and HTTP inspection).
   */
  readonly watching: Watching;
  /**
   * The transitions of the state `deciding`, in which the DNS proxy or service plane (TLS and HTTP
   * inspection) has a policy, and the datapath accepts grants (addresses that allowed DNS names resolved to).
   * Their target states are in `states`.
   */
  readonly deciding: Deciding;
  readonly states: States;
};

/**
 * Returns the states of the chart of the part: the common states (not configured, not listening yet, without
 * a policy, without grants), and the further states of the part in `states`.
 */
export function grantedStates<
  P extends PartName,
  const F extends Facts,
  Died extends string,
  Change extends string,
  const Note,
  const Use,
  const Watching extends readonly unknown[],
  const Deciding extends readonly unknown[],
  const States,
>(own: Own<P, F, Died, Change, Note, Use, Watching, Deciding, States>) {
  const { part, need, details, notePolicy, use, died, change, watching, deciding, states } = own;
  const facts = { ...ON_DATAPLANE, 'policy.activated': [notePolicy, use], ...own.facts } as const;
  const isNeeded = (needed: boolean) =>
    ({
      type: 'isNeeded',
      params: ({ event }: { event: { readonly needs: Needs } }) => ({ needed: event.needs[need] === needed }),
    }) as const;
  return {
    choosing: {
      always: [
        { guard: 'isConfigured', target: 'running' },
        { guard: 'isNeededFromTheStart', target: 'needed_but_absent' },
        { target: 'disabled' },
      ],
    },
    disabled: {
      ...reports(part, 'disabled', 'not configured; the active policy does not need it'),
      on: { 'policy.activated': { guard: isNeeded(true), target: 'needed_but_absent' } },
    },
    needed_but_absent: {
      ...reports(part, 'needed_but_absent', details.needed_but_absent),
      on: { 'policy.activated': { guard: isNeeded(false), target: 'disabled' } },
    },
    running: {
      initial: 'binding',
      invoke: [SETTINGS, ...watching],
      on: {
        ...caused(facts),
        ...({ [change]: { actions: 'forwardToSettings' } } as Readonly<
          Record<Change, { readonly actions: 'forwardToSettings' }>
        >),
      },
      states: {
        binding: {
          ...reports(part, 'starting', details.binding),
          entry: 'forgetServed',
          invoke: {
            id: 'open',
            src: 'open',
            onDone: { target: 'serving', actions: ['forgetTrouble', use] },
            onError: { target: 'backing_off', actions: noteFailure },
          },
        },
        backing_off: {
          ...reports(part, 'failed', details.backing_off),
          entry: 'countAttempt',
          after: { backoff: 'binding' },
          // New settings may end the failure, for example another listen address.
          on: { 'settings.changed': 'binding' },
          // If no interface had the listen address, try to listen again as soon as an address changes,
          // without waiting for the back-off.
          invoke: {
            id: 'addressChange',
            src: 'addressChange',
            onDone: { guard: 'lacksAddress', target: 'binding' },
            onError: { actions: [] },
          },
        },
        serving: {
          initial: 'deciding',
          invoke: { id: 'watch', src: 'watch', onError: { target: 'backing_off', actions: noteFailure } },
          on: {
            ...redeciding(facts),
            ...({ [died]: { target: 'backing_off', actions: noteDeath } } as Readonly<
              Record<Died, { readonly target: 'backing_off'; readonly actions: typeof noteDeath }>
            >),
          },
          states: {
            deciding: {
              always: [
                { guard: 'hasNoPolicy', target: 'awaiting_policy' },
                { guard: 'mayConnect', target: 'connecting' },
                { guard: 'lacksGrants', target: 'awaiting_dataplane' },
                ...deciding,
              ],
            },
            awaiting_policy: reports(part, 'starting', details.awaiting_policy),
            connecting: {
              ...reports(part, 'starting', details.connecting),
              invoke: {
                id: 'connectGrants',
                src: 'connectGrants',
                onDone: { target: 'deciding', actions: 'noteGrants' },
                onError: { target: 'disconnected', actions: noteFailure },
              },
            },
            disconnected: {
              ...reports(part, 'failed', details.disconnected),
              after: { reconnect: 'deciding' },
            },
            awaiting_dataplane: reports(part, 'starting', details.awaiting_dataplane),
            ...states,
          },
        },
      },
    },
  } as const;
}
