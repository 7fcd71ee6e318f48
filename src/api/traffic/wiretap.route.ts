import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { eventStream, type Stream, webSocketStream } from '#api/connections/streams.js';
import { ApiError, WEBSOCKET_NEEDED } from '#api/errors/errors.js';
import { scope } from '#api/nodes/ask-nodes.js';
import { wiretapOfNodes } from '#api/nodes/wiretap-of-nodes.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import {
  duration,
  FEW,
  few,
  hostnames,
  networks,
  oneOrMore,
  ports,
  protocols,
  wordsOf,
} from '#api/requests/query-parameters.js';
import { queryOf } from '#api/requests/query-string.js';
import { needPerformanceMode } from '#api/settings/performance-mode.route.js';
import type { Sink } from '#observe/wiretap/readers.js';
import { WIRETAP_TYPES, WIRETAP_VERDICTS, type WiretapFilter } from '#observe/wiretap/wiretap-filter.js';

const wiretapQuery = z.strictObject({
  scope: scope.describe(
    '`cluster`: the messages of all nodes; each names its node. `node`: only messages of this node.',
  ),
  src: networks.refine(few, FEW),
  dst: networks.refine(few, FEW),
  port: ports.refine(few, FEW).describe('The port of either side.'),
  proto: protocols.refine(few, FEW),
  hostname: hostnames
    .refine(few, FEW)
    .describe(
      'A name in a DNS query, in a TLS ClientHello or in an HTTP request, or a name for which an address of either side is granted.',
    ),
  group: oneOrMore.optional().refine(few, FEW),
  rule: oneOrMore.optional().refine(few, FEW),
  verdict: wordsOf(WIRETAP_VERDICTS),
  type: wordsOf(WIRETAP_TYPES),
  replay: duration(0, Number.POSITIVE_INFINITY, 'Must be a duration such as 10s or 500ms.')
    .optional()
    .describe(
      'The stream begins with the messages of this last period, such as `10s`. The maximum is `wiretap.replay` of the configuration.',
    ),
  fold: duration(50, 10_000, 'Must be a duration from 50ms to 10s, such as 250ms.')
    .optional()
    .describe(
      'Messages within this time that differ only in time, source port and sizes are one message with `count` and `first_seen`; its other fields are those of the latest. Without it each message is sent at once.',
    ),
});
type WiretapQuery = z.infer<typeof wiretapQuery>;

function wiretapFilterOf(query: WiretapQuery): WiretapFilter {
  return {
    sources: query.src ?? [],
    destinations: query.dst ?? [],
    ports: query.port ?? [],
    protocols: query.proto ?? [],
    hostnames: query.hostname ?? [],
    groups: query.group ?? [],
    rules: query.rule ?? [],
    verdicts: query.verdict ?? [],
    types: query.type ?? [],
  };
}

/**
 * Returns the query parameter `replay` in milliseconds; 0 if it is absent. Throws `invalid_query` if the
 * value is greater than the time for which messages are kept.
 */
function replayOf({ replay = 0 }: WiretapQuery, keptMs: number): number {
  if (replay <= keptMs) return replay;
  const message = `No more than the last ${keptMs} ms are kept (wiretap.replay).`;
  throw new ApiError('invalid_query', message, [{ pointer: '?replay', code: 'invalid_parameter', message }]);
}

export const wiretapResource: Resource = (api, management) => {
  const { wiretap } = management;
  const wanted = ({ query }: Pick<FastifyRequest, 'query'>) => {
    const read = query as z.infer<typeof wiretapQuery>;
    const times = { replayMs: replayOf(read, wiretap.replayMs), foldMs: read.fold ?? 0 };
    return { filter: wiretapFilterOf(read), times, scope: read.scope };
  };
  const streamFor = (request: FastifyRequest): Stream => {
    const { filter, times, scope } = wanted(request);
    return {
      begin: (sink) => {
        const own = (taking: Sink) => wiretap.read(filter, times, taking);
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
