import { z } from 'zod';
import { formatAddress } from '#addresses/ip-address.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { noQuery } from '#api/requests/query-parameters.js';
import type { KnownName } from '#contracts/dns/seen-lookup.js';

const NameSchema = z.object({
  hostname: z.string(),
  ips: z.array(z.union([z.ipv4(), z.ipv6()])),
  patterns: z.array(z.string()).describe('The hostname patterns of the policy for which the addresses are granted.'),
  expires_at: instant.describe('The time when the last grant of these addresses expires.'),
  last_seen: instant,
});
const DnsCacheSchema = z.object({ items: z.array(NameSchema) }).meta({ id: 'DnsCache' });

export const dnsCacheResource: Resource = (api, { lookups }) => {
  api.get(
    '/api/v1/dns-cache',
    {
      schema: {
        operationId: 'getDnsCache',
        tags: ['observation'],
        summary: 'List the names that clients have looked up, and the addresses granted for them',
        querystring: noQuery,
        response: { 200: DnsCacheSchema, ...errorAnswers(...errorsOf.read, 'feature_unavailable') },
      },
    },
    async () => {
      const names = await lookups.names();
      if ('kind' in names) throw refused(names);
      return { items: names.map(shown) };
    },
  );
};

function shown({ hostname, addresses, patterns, expiresAtMs, lastSeenMs }: KnownName): z.infer<typeof NameSchema> {
  return {
    hostname,
    ips: addresses.map(formatAddress),
    patterns: [...patterns],
    expires_at: new Date(expiresAtMs).toISOString(),
    last_seen: new Date(lastSeenMs).toISOString(),
  };
}
