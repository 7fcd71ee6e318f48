import { assign, type EventObject, forwardTo, fromCallback, fromPromise, setup } from 'xstate';
import type { RequestMessage } from '#bus/bus-messages.js';
import type { DatapathChange, Review } from '#contracts/datapath/datapath.js';
import { notProvided, sentenceOf } from './failure.js';
import { readinessTypes, reports, type Troubles } from './readiness.js';

/**
 * The result of attaching the BPF programs. `missing`: the configured interface names that no interface has.
 * `renamed`: a sentence for each attached interface that no configured name matches any more.
 */
export type Attached = Review & { readonly missing: readonly string[]; readonly renamed: readonly string[] };

export type InterfacesInput = {
  /** Whether the configuration has a `dataplane` section. */
  readonly configured: boolean;
};
type InterfacesContext = InterfacesInput & {
  readonly missing: readonly string[];
  /** Faults that prevent Weir from policing the configured interfaces as configured. */
  readonly faults: readonly string[];
  readonly renamed: readonly string[];
  readonly trouble: Troubles;
  readonly notices: Troubles;
};
/**
 * The dataplane chart sends these events to the interfaces chart. The actor `settings` sends
 * `interfaces.attached` too, after it has changed the names of the policed interfaces.
 */
export type InterfacesEvent =
  | { readonly type: 'interfaces.attached'; readonly attached: Attached }
  | { readonly type: 'datapath.changed'; readonly change: DatapathChange }
  | RequestMessage<'interfaces.change'>;

const part = 'dataplane_config';

export const interfacesChart = setup({
  types: readinessTypes<InterfacesContext, InterfacesInput, InterfacesEvent>(),
  actors: {
    attach: fromPromise<Attached>(notProvided('attach')),
    /** Polices the interfaces of each change request that it receives, and answers the request. */
    settings: fromCallback<EventObject>(notProvided('settings')),
  },
  actions: {
    forwardToSettings: forwardTo('settings'),
    /**
     * Stops this actor with the error of a child, which can only be a bug. The dataplane chart then stops
     * too, and the node chart starts it again.
     */
    die: (_, { failure }: { failure: unknown }) => {
      throw failure;
    },
    noteAttached: assign((_, { missing, renamed, faults, warnings }: Attached) => ({
      missing,
      faults,
      renamed,
      notices: warnings.length === 0 ? {} : { [part]: warnings.join('; ') },
    })),
    noteChange: assign((_, { change }: { change: DatapathChange }) =>
      change.type === 'pins_lost'
        ? { trouble: { [part]: `pins were removed or replaced: ${change.pins.join(', ')}` } }
        : {},
    ),
    nameFaults: assign(({ context }) => ({
      trouble: { [part]: [...context.faults, ...context.renamed, ...missingSentences(context)].join('; ') },
    })),
    nameRenamed: assign(({ context }) => ({
      trouble: { [part]: [...context.renamed, ...missingSentences(context)].join('; ') },
    })),
    nameMissing: assign(({ context }) => ({ trouble: { [part]: context.missing.join(', ') } })),
    noteTrouble: assign((_, params: { trouble: string }) => ({ trouble: { [part]: params.trouble } })),
    clearTrouble: assign({ trouble: {} }),
  },
  guards: {
    isConfigured: ({ context }) => context.configured,
    isFaulty: ({ context }) => context.faults.length > 0,
    areRenamed: ({ context }) => context.renamed.length > 0,
    areMissing: ({ context }) => context.missing.length > 0,
    workerDied: (_, { change }: { change: DatapathChange }) => change.type === 'worker_died',
    attachmentChanged: (_, { change }: { change: DatapathChange }) =>
      change.type !== 'worker_died' && change.type !== 'refusals_changed',
  },
  delays: { reattachBackoff: 2_000 },
}).createMachine({
  id: 'interfaces',
  context: ({ input }) => ({ ...input, missing: [], faults: [], renamed: [], trouble: {}, notices: {} }),
  initial: 'choosing',
  invoke: {
    id: 'settings',
    src: 'settings',
    onError: { actions: { type: 'die', params: ({ event }) => ({ failure: event.error }) } },
  },
  on: {
    'interfaces.change_requested': { actions: 'forwardToSettings' },
    'interfaces.attached': {
      target: '.deciding',
      actions: { type: 'noteAttached', params: ({ event }) => event.attached },
    },
  },
  states: {
    choosing: { always: [{ guard: 'isConfigured', target: 'unresolved' }, { target: 'no_section' }] },
    no_section: {
      ...reports(part, 'failed', 'the configuration has no dataplane section: policies are stored but not enforced'),
    },
    unresolved: {
      ...reports(part, 'starting', 'the datapath is not attached yet'),
      entry: 'clearTrouble',
    },
    deciding: {
      always: [
        { guard: 'isFaulty', target: 'resolved.refused' },
        { guard: 'areRenamed', target: 'resolved.interface_renamed' },
        { guard: 'areMissing', target: 'resolved.interface_missing' },
        { target: 'resolved.configured' },
      ],
    },
    resolved: {
      initial: 'configured',
      on: {
        'datapath.changed': [
          { guard: { type: 'workerDied', params: ({ event }) => event }, target: 'unresolved' },
          {
            guard: { type: 'attachmentChanged', params: ({ event }) => event },
            target: '.reattaching',
            actions: { type: 'noteChange', params: ({ event }) => event },
          },
        ],
      },
      states: {
        configured: {
          ...reports(part, 'ready', 'the datapath is attached to every configured interface'),
          entry: 'clearTrouble',
        },
        refused: {
          ...reports(part, 'failed', 'a configured interface cannot be policed'),
          entry: 'nameFaults',
        },
        interface_renamed: {
          ...reports(part, 'degraded', 'a policed interface has a name that dataplane.interfaces does not contain'),
          entry: 'nameRenamed',
        },
        interface_missing: {
          ...reports(part, 'degraded', 'no interface has this name'),
          entry: 'nameMissing',
        },
        reattaching: {
          ...reports(part, 'degraded', 'interfaces, the guard or pins changed; attaching again'),
          invoke: {
            id: 'reattach',
            src: 'attach',
            onDone: {
              target: '#interfaces.deciding',
              actions: { type: 'noteAttached', params: ({ event }) => event.output },
            },
            onError: {
              target: 'reattach_failed',
              actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
            },
          },
        },
        reattach_failed: {
          ...reports(part, 'failed', 'attaching again failed; the node tries again soon'),
          after: { reattachBackoff: 'reattaching' },
        },
      },
    },
  },
});

const missingSentences = ({ missing }: InterfacesContext): string[] =>
  missing.length === 0 ? [] : [`no interface has this name: ${missing.join(', ')}`];
