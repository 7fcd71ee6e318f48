import { z } from 'zod';
import type { Statechart } from '#bus/statecharts.js';
import { errorAnswers, errorsOf, instant } from './answer.schema.js';
import type { Resource } from './api.js';
import { isStillAllowed } from './authentication.js';
import { ApiError } from './errors.js';
import { noQuery } from './query-parameters.js';
import { StatechartReaders } from './statechart-reader.js';
import { closeWithToken } from './streams.js';

const count = z.int().min(0);
const state = z.unknown().describe('A state, or an object of regions and their states.');

const StatechartSchema = z
  .object({
    name: z.string(),
    session_id: z.string(),
    parent_id: z.string().nullable(),
    definition: z.record(z.string(), z.unknown()).describe('The configuration of the machine, as XState has it.'),
    status: z.enum(['active', 'done', 'error', 'stopped']),
    value: state,
    tags: z.array(z.string()),
    context: z.record(z.string(), z.unknown()).describe('What may be seen of it.'),
    since: instant.describe('When the state was entered.'),
    recent: z.array(z.object({ time: instant, event: z.string(), value: state })).describe('The latest, oldest first.'),
  })
  .meta({ id: 'Statechart' });
const StatechartsSchema = z
  .object({
    charts: z.array(StatechartSchema),
    readers: z.object({
      open: count,
      dropped: count.describe('Messages lost because readers were too slow.'),
      cut_off: count.describe('Readers that were disconnected for being too slow.'),
    }),
  })
  .meta({ id: 'Statecharts', description: 'The statechart of every part of this node, with its current state.' });

export const debugResource: Resource = (api, { debug, tokens }) => {
  const readers = new StatechartReaders(debug);

  api.get(
    '/api/v1/debug/statecharts',
    {
      schema: {
        operationId: 'getStatecharts',
        tags: ['support'],
        summary: 'The statecharts of the node, their states and their latest events',
        querystring: noQuery,
        response: { 200: StatechartsSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async () => {
      const { open, dropped, cutOff } = readers.counts;
      return { charts: debug.charts().map(shown), readers: { open, dropped, cut_off: cutOff } };
    },
  );

  api.route({
    method: 'GET',
    url: '/api/v1/debug/statecharts/stream',
    schema: {
      operationId: 'streamStatecharts',
      tags: ['support'],
      summary: 'What goes on in the statecharts of the node',
      description:
        'A WebSocket with the subprotocol `weir.statecharts.v1`: one JSON object a message, in the form of the Stately inspector. ' +
        'First an `@xstate.actor` of every actor that runs, then each `@xstate.event` and `@xstate.snapshot` as it happens, ' +
        'and `{"type":"lost","count":n}` and every actor anew where the reader was too slow.',
      querystring: noQuery,
      response: {
        101: z.null().describe('The connection is a WebSocket from now on.'),
        ...errorAnswers(...errorsOf.read, 'upgrade_needed'),
      },
    },
    handler: async () => {
      throw new ApiError('upgrade_needed');
    },
    wsHandler: (socket, request) => {
      closeWithToken(socket, () => isStillAllowed(request, tokens));
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
  ...chart
}: Statechart): z.infer<typeof StatechartSchema> {
  return {
    ...chart,
    session_id: sessionId,
    parent_id: parentId,
    definition: definition as Record<string, unknown>,
    tags: [...tags],
    recent: recent.map((event) => ({ ...event })),
  };
}
