import { z } from 'zod';
import { errorAnswers, errorsOf } from './answer.schema.js';
import type { Resource } from './api.js';

export const metricsResource: Resource = (api, { metrics }) => {
  api.get(
    '/metrics',
    {
      config: { access: { management: 'public', metrics: 'public' } },
      schema: {
        operationId: 'getMetrics',
        tags: ['observation'],
        summary: 'Prometheus metrics',
        response: {
          200: { description: 'Prometheus text format.', content: { 'text/plain': { schema: z.string() } } },
          ...errorAnswers(...errorsOf.public),
        },
      },
    },
    async (_request, reply) => reply.type(metrics.contentType).send(await metrics.scrape()),
  );
};
