import { z } from 'zod';
import { errorAnswers, errorsOf, instant } from './answer.schema.js';
import type { Resource } from './api.js';
import { ApiError } from './errors.js';
import { noQuery } from './query.js';

const DnsCacheSchema = z
  .object({
    entries: z.array(
      z.object({
        hostname: z.string(),
        ips: z.array(z.ipv4()),
        patterns: z.array(z.string()).describe('The patterns of the policy that the addresses are granted to.'),
        expires_at: instant,
        last_seen: instant,
      }),
    ),
  })
  .meta({ id: 'DnsCache' });

export const dnsCacheResource: Resource = (api) => {
  api.get(
    '/api/v1/dns-cache',
    {
      schema: {
        operationId: 'getDnsCache',
        tags: ['observation'],
        summary: 'Names that were looked up, and the addresses granted for them',
        querystring: noQuery,
        response: { 200: DnsCacheSchema, ...errorAnswers(...errorsOf.read, 'feature_unavailable') },
      },
    },
    async () => {
      throw new ApiError('feature_unavailable', 'the DNS proxy is not running on this node');
    },
  );
};
