import { z } from 'zod';
import { errorAnswers, errorsOf, instant } from './answer.schema.js';
import type { Resource } from './api.js';
import { ApiError } from './errors.js';
import { needPerformanceMode } from './performance-gate.js';
import { oneOrMore } from './query.js';

const findingType = z.enum(['l4_deny', 'icmp_deny', 'dns_deny', 'tls_deny', 'http_deny', 'auth_denied']);
const FindingSchema = z
  .object({
    finding_type: findingType,
    policy_id: z.string().nullable(),
    generation: z.int().min(0),
    source_group: z.string().nullable(),
    rule: z.string().nullable(),
    src_ip: z.ipv4().nullable(),
    dst_ip: z.ipv4().nullable(),
    dst_port: z.int().min(0).max(65_535).nullable(),
    proto: z.int().min(0).max(255).nullable(),
    hostname: z.string().nullable(),
    sni: z.string().nullable(),
    http: z.object({ method: z.string(), host: z.string(), path: z.string() }).nullable(),
    icmp_type: z.int().min(0).max(255).nullable(),
    icmp_code: z.int().min(0).max(255).nullable(),
    drop_reason: z.string().nullable(),
    effective_action: z.enum(['allow', 'deny']),
    first_seen: instant,
    last_seen: instant,
    count: z.int().min(1),
    node_ids: z.array(z.string()),
  })
  .meta({ id: 'Finding', description: 'Equal denies are one finding with a count.' });
const FindingsSchema = z
  .object({
    items: z.array(FindingSchema),
    next_cursor: z.string().nullable(),
    partial: z.boolean().describe('A node did not answer.'),
    node_errors: z.array(z.object({ node_id: z.string(), error: z.string() })),
    nodes_queried: z.int().min(0),
    nodes_responded: z.int().min(0),
  })
  .meta({ id: 'Findings' });

const INSTANT = { error: 'Must be a time in UTC such as 2026-01-31T12:00:00Z.' };
const LIMIT = { error: 'Must be a whole number from 1 to 1000.' };

const findingsQuery = z.strictObject({
  finding_type: z
    .union([findingType, z.array(findingType)], { error: `Must be one of ${findingType.options.join(', ')}.` })
    .optional(),
  source_group: oneOrMore.optional(),
  rule: oneOrMore.optional(),
  policy_id: oneOrMore.optional(),
  src: oneOrMore.optional(),
  dst: oneOrMore.optional(),
  since: z.iso.datetime(INSTANT).optional(),
  until: z.iso.datetime(INSTANT).optional(),
  limit: z.coerce.number(LIMIT).int(LIMIT).min(1, LIMIT).max(1_000, LIMIT).optional(),
  cursor: z.string('Must be a cursor that an answer gave.').optional(),
});

export const auditResource: Resource = (api, management) => {
  for (const [path, operationId, summary] of [
    ['/api/v1/audit/findings', 'listFindings', 'Denies that were recorded, of every node'],
    ['/api/v1/audit/findings/local', 'listLocalFindings', 'Denies that this node recorded'],
  ] as const) {
    api.get(
      path,
      {
        schema: {
          operationId,
          tags: ['observation'],
          summary,
          querystring: findingsQuery,
          response: {
            200: FindingsSchema,
            ...errorAnswers(...errorsOf.read, 'performance_mode_disabled', 'feature_unavailable'),
          },
        },
      },
      async () => {
        await needPerformanceMode(management);
        throw new ApiError('feature_unavailable', 'this node records no findings yet');
      },
    );
  }
};
