import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';

const HealthSchema = z
  .object({ status: z.literal('ok') })
  .meta({ id: 'Health', description: 'The process responds.', examples: [{ status: 'ok' }] });

export const healthResource: Resource = (api) => {
  api.get(
    '/health',
    {
      config: { access: { management: 'public', metrics: 'public' } },
      schema: {
        operationId: 'getHealth',
        tags: ['observation'],
        summary: 'Process liveness',
        response: { 200: HealthSchema, ...errorAnswers(...errorsOf.public) },
      },
    },
    async () => ({ status: 'ok' as const }),
  );
};
