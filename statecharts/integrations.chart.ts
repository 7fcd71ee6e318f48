import { assign, type EventObject, enqueueActions, fromCallback, setup } from 'xstate';
import { notProvided } from './failure.js';
import { kubernetesChart } from './kubernetes.chart.js';

export type IntegrationsContext = {
  /** The names of all integrations. Each has an actor with its name as id. */
  readonly names: readonly string[];
};
export type IntegrationsEvent = { readonly type: 'integrations.changed'; readonly names: readonly string[] };

/** The chart of all Kubernetes integrations of the node: it has one actor for each of them. */
export const integrationsChart = setup({
  types: { context: {} as IntegrationsContext, events: {} as IntegrationsEvent },
  actors: {
    /** Sends `integrations.changed` at the start, and after each change of the stored integrations. */
    follow: fromCallback<EventObject>(notProvided('follow')),
    integration: kubernetesChart,
  },
  actions: {
    noteNames: assign((_, { names }: { names: readonly string[] }) => ({ names })),
    /** Stops this actor with the error of its child, which can only be a bug. */
    die: (_, { failure }: { failure: unknown }) => {
      throw failure;
    },
    adjust: enqueueActions(({ context, enqueue }, { names }: { names: readonly string[] }) => {
      for (const gone of context.names) if (!names.includes(gone)) enqueue.stopChild(gone);
      for (const name of names)
        if (!context.names.includes(name)) enqueue.spawnChild('integration', { id: name, input: { name } });
    }),
  },
}).createMachine({
  id: 'integrations',
  context: { names: [] },
  invoke: {
    id: 'follow',
    src: 'follow',
    onError: { actions: { type: 'die', params: ({ event }) => ({ failure: event.error }) } },
  },
  on: {
    'integrations.changed': {
      actions: [
        { type: 'adjust', params: ({ event }) => event },
        { type: 'noteNames', params: ({ event }) => event },
      ],
    },
  },
  initial: 'following',
  states: { following: {} },
});
