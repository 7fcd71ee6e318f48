import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';

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
