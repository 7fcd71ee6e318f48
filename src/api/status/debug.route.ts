import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { closeWithToken } from '#api/connections/streams.js';
import { ApiError, WEBSOCKET_NEEDED } from '#api/errors/errors.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { noQuery } from '#api/requests/query-parameters.js';
import type { ChartDefinition, Statechart } from '#bus/statecharts.js';
import { shownTransition, TransitionSchema } from './shown-transition.js';
import { StatechartReaders } from './statechart-reader.js';

const count = z.int().min(0);
const state = z.unknown().describe('The active state: a name, or an object of regions and their states.');

const StatechartSchema = z
  .object({
    name: z.string(),
    session_id: z.string(),
    parent_id: z.string().nullable(),
    chart: z.string().describe('The `id` of its definition in `/api/v1/debug/statecharts/definitions`.'),
    definition: z.record(z.string(), z.unknown()).describe('The configuration of the machine in the format of XState.'),
    status: z.enum(['active', 'done', 'error', 'stopped']),
    value: state,
    tags: z.array(z.string()),
    context: z
      .record(z.string(), z.unknown())
      .describe('The part of the context that contains no secret and no bulk data.'),
    since: instant.describe('The time when the actor entered the state.'),
    recent: z
      .array(z.object({ time: instant, event: z.string(), value: state }))
      .describe('The latest events, the oldest first.'),
    transitions: z.array(TransitionSchema).describe('The latest transitions, at most 50, the oldest first.'),
  })
  .meta({ id: 'Statechart' });
const DefinitionsSchema = z
  .object({
    definitions: z.array(
      z
        .object({
          id: z.string(),
          states: z
            .array(
              z.object({
                id: z.string(),
                key: z.string().describe('The name of the state in the state around it.'),
                parent: z.string().nullable().describe('The `id` of the state around it; null for the outermost.'),
                type: z.enum(['atomic', 'compound', 'parallel', 'final', 'history']),
                initial: z.string().nullable().describe('The `id` of the inner state that is entered by default.'),
                tags: z.array(z.string()).describe('`PART:CONDITION` is what the state reports for the readiness.'),
                description: z.string().nullable(),
                invokes: z.array(z.string()).describe('The ids of the actors that run while the state is active.'),
                entry: z.array(z.string()).describe('The names of the actions at entry.'),
                exit: z.array(z.string()).describe('The names of the actions at exit.'),
              }),
            )
            .describe('An outer state comes before its inner states. The first is the whole chart.'),
          transitions: z
            .array(
              z.object({
                source: z.string().describe('The `id` of a state.'),
                targets: z.array(z.string()).describe('Empty if the transition only runs actions.'),
                event: z
                  .string()
                  .nullable()
                  .describe('The event in the notation of XState; null if the transition needs none.'),
                guard: z.string().nullable(),
                actions: z.array(z.string()),
                reenter: z.boolean().describe('Whether the source is left and entered although the target is inside.'),
              }),
            )
            .describe('`index` of a transition that was taken is the position in this list.'),
        })
        .meta({ id: 'StatechartDefinition' }),
    ),
  })
  .meta({ id: 'StatechartDefinitions', description: 'Every kind of statechart of this build, as plain data.' });
const StatechartsSchema = z
  .object({
    charts: z.array(StatechartSchema),
    readers: z.object({
      open: count,
      dropped: count.describe('Messages that were dropped because readers were too slow.'),
      cut_off: count.describe('Readers that were disconnected for being too slow.'),
    }),
  })
  .meta({ id: 'Statecharts', description: 'The statechart of every part of this node, with its current state.' });

export const debugResource: Resource = (api, { debug }) => {
  const readers = new StatechartReaders(debug);

  api.get(
    '/api/v1/debug/statecharts',
    {
      schema: {
        operationId: 'getStatecharts',
        tags: ['support'],
        summary: 'List the statecharts of the node with their states and latest events',
        querystring: noQuery,
        response: { 200: StatechartsSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async () => {
      const { open, dropped, cutOff } = readers.counts;
      return { charts: debug.charts().map(shown), readers: { open, dropped, cut_off: cutOff } };
    },
  );

  api.get(
    '/api/v1/debug/statecharts/definitions',
    {
      schema: {
        operationId: 'getStatechartDefinitions',
        tags: ['support'],
        summary: 'List the states and transitions of each statechart',
        querystring: noQuery,
        response: { 200: DefinitionsSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async () => ({ definitions: debug.definitions().map(shownDefinition) }),
  );

  api.route({
    method: 'GET',
    url: '/api/v1/debug/statecharts/stream',
    schema: {
      operationId: 'streamStatecharts',
      tags: ['support'],
      summary: 'Stream the events and states of the statecharts of the node',
      description:
        'A WebSocket with the subprotocol `weir.statecharts.v1`. Each message is one JSON object in the format of the Stately inspector. ' +
        'The stream begins with an `@xstate.actor` message for each running actor, and `{"type":"recent_transitions","transitions":[…]}`. ' +
        'An `@xstate.event` or `@xstate.snapshot` message then follows for each event, and before a snapshot a `transition` message for each step that led to it. ' +
        'Transitions are in the form of `StatechartTransition`, which is not a part of the format of the inspector. ' +
        'If the reader was too slow, the stream contains `{"type":"lost","count":n}` and all running actors again.',
      querystring: noQuery,
      response: {
        101: z.null().describe('The connection is upgraded to a WebSocket.'),
        ...errorAnswers(...errorsOf.read, 'upgrade_needed'),
      },
    },
    handler: async () => {
      throw new ApiError('upgrade_needed', undefined, [], WEBSOCKET_NEEDED);
    },
    wsHandler: (socket, request) => {
      closeWithToken(socket, () => request.isStillAllowed());
      readers.add(socket);
    },
  });
};

function shown({
  sessionId,
  parentId,
  definition,
  tags,
  recent,
  transitions,
  ...chart
}: Statechart): z.infer<typeof StatechartSchema> {
  return {
    ...chart,
    session_id: sessionId,
    parent_id: parentId,
    definition: definition as Record<string, unknown>,
    tags: [...tags],
    recent: recent.map((event) => ({ ...event })),
    transitions: transitions.map(shownTransition),
  };
}

function shownDefinition({ id, states, transitions }: ChartDefinition) {
  return {
    id,
    states: states.map(({ tags, invokes, entry, exit, ...state }) => ({
      ...state,
      tags: [...tags],
      invokes: [...invokes],
      entry: [...entry],
      exit: [...exit],
    })),
    transitions: transitions.map(({ targets, actions, ...transition }) => ({
      ...transition,
      targets: [...targets],
      actions: [...actions],
    })),
  };
}
