import { z } from 'zod';
import { ApiError } from '#api/errors/errors.js';
import { coverageShape, ONE_NODE, scope } from '#api/nodes/ask-nodes.js';
import { instant } from '#api/openapi/answer.schema.js';
import { flag, oneOrMore, pageLimit } from '#api/requests/query-parameters.js';
import type { Hit, HitReport } from '#contracts/datapath/datapath.js';

const count = z.int().min(0);

const HitSchema = z
  .object({
    decided_by: z.enum(['rule', 'group_default', 'policy_default']),
    source_group: z.string().nullable(),
    rule: z.string().nullable(),
    packets: count.describe(
      'Packets that the rule allowed, in both directions of their flows, and packets that it denied. Each TLS connection or HTTP request ' +
        'that the service plane decided by the rule adds one, and so does each DNS lookup.',
    ),
    bytes: count.describe('Bytes of packets. Connections, requests and lookups add no bytes.'),
    last_hit: instant.nullable(),
    unused: z.boolean(),
    unused_since: instant
      .nullable()
      .describe('The time when counting began for a rule without hits. Null if the rule has hits.'),
  })
  .meta({ id: 'Hit' });
export const HitsSchema = z
  .object({
    policy_id: z.string().nullable().describe('Null if no policy is active; `policy.fallback` then decides.'),
    revision: z.int().min(1).nullable(),
    generation: count,
    since: instant.describe(
      'The time when this node began to count, or the last of the nodes. A restart or an upgrade does not reset it.',
    ),
    items: z.array(HitSchema).describe('Rules and defaults in the order of the policy.'),
    next_cursor: z.string().nullable(),
    ...coverageShape,
  })
  .meta({
    id: 'Hits',
    description:
      'The hits of the active policy. Packets are counted up to the time of the response; connections, requests and lookups ' +
      'up to 250 ms before it.',
  });

export const hitsQuery = z.strictObject({
  group: oneOrMore.optional(),
  rule: oneOrMore.optional(),
  unused: flag.optional(),
  scope: scope.describe('`cluster`: the sums of all nodes. `node`: only this node.'),
  limit: pageLimit(1_000, 1_000),
  cursor: z
    .string()
    .regex(/^\d{1,16}\.\d{1,10}$/, 'Must be the `next_cursor` of a response.')
    .optional(),
});

export function shownHits(report: HitReport): z.infer<typeof HitsSchema> {
  return {
    policy_id: report.policy?.id ?? null,
    revision: report.policy?.revision ?? null,
    generation: report.generation,
    since: new Date(report.sinceMs).toISOString(),
    items: report.items.map(shown),
    next_cursor: report.next === null ? null : `${report.generation}.${report.next}`,
    ...ONE_NODE,
  };
}

/** Returns the error for a page cursor that was issued for an earlier policy. */
export function staleCursor(): ApiError {
  const message = 'Another policy was activated after this cursor was issued: begin again without a cursor.';
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
