import type { Needs } from '#bus/messages.js';
import { sentenceOf } from './failure.js';
import type { PartName, Troubles } from './readiness.js';

/** What charts have in common of parts that may not be configured, listen in threads, and ask the datapath about grants. */

const isNeeded = {
  type: 'isNeeded',
  params: ({ event }: { event: { readonly needs: Needs } }) => ({ needs: event.needs }),
} as const;

/** What an invoked effect failed with. */
export const noteFailure = {
  type: 'noteTrouble',
  params: ({ event }: { event: { readonly error: unknown } }) => ({ trouble: sentenceOf(event.error) }),
} as const;

/** Whether it could not listen because the node does not have the address. */
export function lacksAddress(trouble: Troubles, part: PartName): boolean {
  return trouble[part]?.includes('EADDRNOTAVAIL') === true;
}

/** A part that is not configured. `unmet`: what becomes of it where a policy needs the part. */
export function absentStates<P extends PartName>(part: P, unmet: string) {
  return {
    choosing: {
      always: [
        { guard: 'isConfigured', target: 'running' },
        { guard: 'isNeededFromTheStart', target: 'needed_but_absent' },
        { target: 'disabled' },
      ],
    },
    disabled: {
      tags: `${part}:disabled`,
      meta: { part, detail: 'not configured, and the active policy does not need it' },
      on: { 'policy.activated': { guard: isNeeded, target: 'needed_but_absent' } },
    },
    needed_but_absent: {
      tags: `${part}:needed_but_absent`,
      meta: { part, detail: `the active policy needs it: ${unmet}` },
      on: { 'policy.activated': { guard: { ...isNeeded, type: 'isNotNeeded' }, target: 'disabled' } },
    },
  } as const;
}

type Beginning<Use> = { readonly binding: string; readonly failed: string; readonly use: Use };

/** Before it is `serving`. `use`: has it judge by the policy in force. */
export function beginningStates<P extends PartName, Use>(part: P, { binding, failed, use }: Beginning<Use>) {
  return {
    binding: {
      tags: `${part}:starting`,
      meta: { part, detail: binding },
      entry: 'forgetServed',
      invoke: {
        id: 'open',
        src: 'open',
        onDone: { target: 'serving', actions: ['forgetTrouble', use] },
        onError: { target: 'backing_off', actions: noteFailure },
      },
    },
    backing_off: {
      tags: `${part}:failed`,
      meta: { part, detail: failed },
      entry: 'countAttempt',
      after: { backoff: 'binding' },
      // An address that is absent is bound as soon as the node has it.
      invoke: {
        id: 'addressChange',
        src: 'addressChange',
        onDone: { guard: 'lacksAddress', target: 'binding' },
        onError: { actions: [] },
      },
    },
  } as const;
}

type WithoutGrants = {
  readonly awaitingPolicy: string;
  readonly awaitingDataplane: string;
  readonly connecting: string;
  readonly disconnected: string;
};

/** While `serving`, but not by all that it is to know; `judging` finds out which of these it is. */
export function statesWithoutGrants<P extends PartName>(part: P, details: WithoutGrants) {
  return {
    awaiting_policy: { tags: `${part}:starting`, meta: { part, detail: details.awaitingPolicy } },
    connecting: {
      tags: `${part}:starting`,
      meta: { part, detail: details.connecting },
      invoke: {
        id: 'connectGrants',
        src: 'connectGrants',
        onDone: { target: 'judging', actions: 'noteGrants' },
        onError: { target: 'disconnected', actions: noteFailure },
      },
    },
    disconnected: {
      tags: `${part}:failed`,
      meta: { part, detail: details.disconnected },
      after: { reconnect: 'judging' },
    },
    awaiting_dataplane: { tags: `${part}:starting`, meta: { part, detail: details.awaitingDataplane } },
  } as const;
}

/** The first that holds says which of them it is. */
export const WITHOUT_GRANTS = [
  { guard: 'hasNoPolicy', target: 'awaiting_policy' },
  { guard: 'mayConnect', target: 'connecting' },
  { guard: 'lacksGrants', target: 'awaiting_dataplane' },
] as const;

/** In every mode. */
export const ON_DATAPLANE = {
  'dataplane.enforcing': { actions: 'noteEnforcing' },
  'dataplane.lost': { actions: 'noteLost' },
  'dataplane.closed': { actions: 'noteLost' },
} as const;

/** While `serving`. */
export const ON_DATAPLANE_SERVING = {
  'dataplane.enforcing': { target: '.judging', actions: 'noteEnforcing' },
  'dataplane.lost': { target: '.judging', actions: 'noteLost' },
  'dataplane.closed': { target: '.judging', actions: 'noteLost' },
} as const;
