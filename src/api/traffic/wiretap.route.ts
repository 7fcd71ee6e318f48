import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { eventStream, type Stream, webSocketStream } from '#api/connections/streams.js';
import { ApiError, WEBSOCKET_NEEDED } from '#api/errors/errors.js';
import { wiretapOfNodes } from '#api/nodes/wiretap-of-nodes.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { queryOf } from '#api/requests/query-string.js';
import { needPerformanceMode } from '#api/settings/performance-gate.js';
import type { Sink } from '#observe/wiretap/readers.js';
import { replayOf, wiretapFilterOf, wiretapQuery } from './wiretap.schema.js';

export const wiretapResource: Resource = (api, management) => {
  const { wiretap } = management;
  const wanted = ({ query }: Pick<FastifyRequest, 'query'>) => {
    const read = query as z.infer<typeof wiretapQuery>;
    return { filter: wiretapFilterOf(read), replayMs: replayOf(read, wiretap.replayMs), scope: read.scope };
  };
  const streamFor = (request: FastifyRequest): Stream => {
    const { filter, replayMs, scope } = wanted(request);
    return {
      begin: (sink) => {
        const own = (taking: Sink) => wiretap.read(filter, replayMs, taking);
        return scope === 'cluster' ? wiretapOfNodes(management, queryOf(request.raw), own, sink) : own(sink);
      },
      isAllowed: () => request.isStillAllowed(),
    };
  };
  api.route({
    method: 'GET',
    exposeHeadRoute: false,
    url: '/api/v1/wiretap/stream',
    config: { access: { management: 'read', peers: 'read' } },
    schema: {
      operationId: 'streamWiretap',
      tags: ['observation'],
      summary: 'Live traffic observation',
      description:
        'A WebSocket with the subprotocol `weir.wiretap.v1`, or Server-Sent Events. Each frame contains one JSON message or ' +
        'an array of them; `docs/wiretap.md` describes them.',
      querystring: wiretapQuery,
      response: {
        101: z.null().describe('The connection is upgraded to a WebSocket.'),
        200: { description: 'Server-Sent Events.', content: { 'text/event-stream': { schema: z.string() } } },
        ...errorAnswers(...errorsOf.read, 'upgrade_needed', 'performance_mode_disabled', 'feature_unavailable'),
      },
    },
    preHandler: async (request) => {
      await needPerformanceMode(management);
      wanted(request);
    },
    handler: async (request, reply) => {
      if (!(request.headers.accept ?? '').includes('text/event-stream')) {
        const remedy = 'send `Accept: text/event-stream`, or request an upgrade to a WebSocket';
        throw new ApiError('upgrade_needed', remedy, [], WEBSOCKET_NEEDED);
      }
      eventStream(reply, streamFor(request));
      return reply;
    },
    wsHandler: (socket, request) => {
      webSocketStream(socket, streamFor(request));
    },
  });
};
