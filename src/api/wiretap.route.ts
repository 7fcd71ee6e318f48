import { z } from 'zod';
import { errorAnswers, errorsOf } from './answer.schema.js';
import type { Resource } from './api.js';
import { ApiError } from './errors.js';
import { needPerformanceMode } from './performance-gate.js';
import { oneOrMore } from './query.js';

const wiretapQuery = z.strictObject({
  src: oneOrMore.optional(),
  dst: oneOrMore.optional(),
  port: oneOrMore.optional(),
  proto: oneOrMore.optional(),
  hostname: oneOrMore.optional(),
  group: oneOrMore.optional(),
  rule: oneOrMore.optional(),
  verdict: oneOrMore.optional(),
  type: oneOrMore.optional(),
});

export const wiretapResource: Resource = (api, management) => {
  api.get(
    '/api/v1/wiretap/stream',
    {
      schema: {
        operationId: 'streamWiretap',
        tags: ['observation'],
        summary: 'Live traffic observation',
        description: 'A WebSocket upgrade with the subprotocol `weir.wiretap.v1`, or Server-Sent Events.',
        querystring: wiretapQuery,
        response: {
          101: z.null().describe('The connection is a WebSocket from now on.'),
          200: { description: 'Server-Sent Events.', content: { 'text/event-stream': { schema: z.string() } } },
          ...errorAnswers(...errorsOf.read, 'performance_mode_disabled', 'feature_unavailable'),
        },
      },
    },
    async () => {
      await needPerformanceMode(management);
      throw new ApiError('feature_unavailable', 'this node has no wiretap yet');
    },
  );
};
