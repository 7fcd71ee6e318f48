import { z } from 'zod';
import { errorAnswers, errorsOf } from './answer.schema.js';
import type { Resource } from './api.js';
import { ApiError } from './errors.js';
import { noQuery } from './query.js';

export const sysdumpResource: Resource = (api) => {
  api.post(
    '/api/v1/support/sysdump/cluster',
    {
      schema: {
        operationId: 'createClusterSysdump',
        tags: ['support'],
        summary: 'Collect a support dump of every node',
        querystring: noQuery,
        response: {
          200: {
            description: 'A .tar.gz with a manifest and one folder a node.',
            content: { 'application/gzip': { schema: z.string().meta({ format: 'binary' }) } },
          },
          ...errorAnswers(...errorsOf.write, 'feature_unavailable'),
        },
      },
    },
    async () => {
      throw new ApiError('feature_unavailable', 'this node cannot collect a support dump yet');
    },
  );
};
