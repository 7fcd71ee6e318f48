import { z } from 'zod';
import type { Hit } from '#contracts/datapath.js';
import { errorAnswers, errorsOf, instant } from './answer.schema.js';
import type { Resource } from './api.js';
import { refused } from './error-answer.js';
import { ApiError } from './errors.js';
import { flag, oneOrMore, pageLimit } from './query-parameters.js';

const count = z.int().min(0);

const HitSchema = z
  .object({
    decided_by: z.enum(['rule', 'group_default', 'policy_default']),
    source_group: z.string().nullable(),
    rule: z.string().nullable(),
    packets: count.describe(
      'Denied ones too, and both ways of the flows that it allowed. A TLS connection or an HTTP request that the service ' +
        'plane decided by it counts as one, and so does a DNS lookup.',
    ),
    bytes: count.describe('Bytes of packets only: decided connections, requests and lookups add none.'),
    last_hit: instant.nullable(),
    unused: z.boolean(),
    unused_since: instant.nullable().describe('When it began to be counted, where it was never hit since.'),
  })
  .meta({ id: 'Hit' });
const HitsSchema = z
  .object({
    policy_id: z.string().nullable().describe('Null while no policy is active: then the fallback decides.'),
    revision: z.int().min(1).nullable(),
    generation: count,
    since: instant.describe('When this node began to count; a restart or an upgrade does not begin anew.'),
    items: z.array(HitSchema).describe('In the order of the policy.'),
    next_cursor: z.string().nullable(),
  })
  .meta({
    id: 'Hits',
    description:
      'What the policy in force was hit by: packets up to the moment of the answer; connections, requests and lookups ' +
      'up to a quarter of a second before.',
  });

const hitsQuery = z.strictObject({
  group: oneOrMore.optional(),
  rule: oneOrMore.optional(),
  unused: flag.optional(),
  limit: pageLimit(1_000, 1_000),
  cursor: z
    .string()
    .regex(/^\d{1,16}\.\d{1,10}$/, 'Must be a cursor that an answer gave.')
    .optional(),
});

export const hitsResource: Resource = (api, { traffic }) => {
  api.get(
    '/api/v1/policy/hits',
    {
      schema: {
        operationId: 'getPolicyHits',
        tags: ['policy'],
        summary: 'Packets, bytes and last hit of each rule and default',
        description:
          'Of the policy in force. A rule keeps its count while its policy, its group and its own id stay the same: over ' +
          'writes, restarts and upgrades, and where it is removed and comes back. A connection that is inspected counts for ' +
          'the rule that decides it, not for the TLS rule that handed it to the service plane.',
        querystring: hitsQuery,
        response: {
          200: HitsSchema,
          ...errorAnswers(...errorsOf.read, 'feature_unavailable', 'dataplane_unavailable'),
        },
      },
    },
    async ({ query }) => {
      const [generation, from = 0] = query.cursor?.split('.').map(Number) ?? [];
      const { group = [], rule = [], unused, limit } = query;
      const report = await traffic.hits({ groups: group, rules: rule, unused, from, limit });
      if ('kind' in report) throw refused(report);
      if (generation !== undefined && generation !== report.generation) throw stale();
      return {
        policy_id: report.policy?.id ?? null,
        revision: report.policy?.revision ?? null,
        generation: report.generation,
        since: new Date(report.sinceMs).toISOString(),
        items: report.items.map(shown),
        next_cursor: report.next === null ? null : `${report.generation}.${report.next}`,
      };
    },
  );
};

function stale(): ApiError {
  const message = 'Another policy came into force since this cursor was given: begin without one.';
  return new ApiError('invalid_query', message, [{ pointer: '?cursor', code: 'invalid_parameter', message }]);
}

function shown({ decider, packets, bytes, lastMs, unusedSinceMs }: Hit): z.infer<typeof HitSchema> {
  return {
    decided_by: decider.kind,
    source_group: decider.kind === 'policy_default' ? null : decider.group,
    rule: decider.kind === 'rule' ? decider.rule : null,
    packets: Number(packets),
    bytes: Number(bytes),
    last_hit: lastMs === null ? null : new Date(lastMs).toISOString(),
    unused: lastMs === null,
    unused_since: unusedSinceMs === null ? null : new Date(unusedSinceMs).toISOString(),
  };
}
