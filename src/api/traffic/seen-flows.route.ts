import { z } from 'zod';
import { SeenTimeSchema, seenFlowMembers } from '#api/analysis/seen-flow.schema.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { instantSchema } from '#api/findings/instant.schema.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { FEW, few, hostnames, networks, pageLimit, ports, protocols, wordsOf } from '#api/requests/query-parameters.js';
import { refusal } from '#contracts/refusal.js';
import { FLOW_VERDICTS } from './flows.schema.js';

const SEEN_FLOW_ORDERS = ['last_seen', 'count'] as const;

const count = z.int().min(0);
const SeenFlowsSchema = z
  .object({
    node_id: z.string(),
    matched: count.describe('The number of flows that match.'),
    connections: count.describe('How often they passed.'),
    denied: count.describe('How often they were denied.'),
    items: z.array(z.object(seenFlowMembers).meta({ id: 'SeenFlow' })),
    coverage: SeenTimeSchema,
  })
  .meta({ id: 'SeenFlows' });

const seenFlowsQuery = z.strictObject({
  src: networks.refine(few, FEW),
  dst: networks.refine(few, FEW),
  dst_port: ports.refine(few, FEW),
  proto: protocols.refine(few, FEW),
  hostname: hostnames.refine(few, FEW).describe('A name for which the destination was granted.'),
  verdict: wordsOf(FLOW_VERDICTS).describe('The verdict of the last one.'),
  since: instantSchema.optional().describe('Only flows whose `last_seen` is this time or later.'),
  order: z
    .enum(SEEN_FLOW_ORDERS)
    .default('last_seen')
    .describe('`last_seen`: the latest flow first. `count`: the flow that was seen most often first.'),
  limit: pageLimit(100, 1_000),
});

export const seenFlowsResource: Resource = (api, management) => {
  api.get(
    '/api/v1/flows/seen',
    {
      schema: {
        operationId: 'listSeenFlows',
        tags: ['observation'],
        summary: 'Flows that this node has seen in the last days',
        description:
          'A seen flow is a source, a destination, a protocol and a destination port, whatever the source port. `flow_history` of the configuration bounds their age and number. ' +
          'The list begins with the first flows of the order, and `matched` counts all of them. IPv6 flows are recorded with `dataplane.ipv6: enforce`.',
        querystring: seenFlowsQuery,
        response: { 200: SeenFlowsSchema, ...errorAnswers(...errorsOf.read, 'feature_unavailable') },
      },
    },
    async ({ query }) => {
      const page = await management.seenFlows({
        sources: query.src ?? [],
        destinations: query.dst ?? [],
        ports: query.dst_port ?? [],
        protocols: query.proto ?? [],
        hostnames: query.hostname ?? [],
        verdicts: query.verdict ?? [],
        sinceS: query.since === undefined ? 0 : Date.parse(query.since) / 1_000,
        order: query.order,
        limit: query.limit,
      });
      if (page === null)
        throw refused(refusal('feature_unavailable', 'this node records no flows: flow_history.retention is 0s'));
      const { flows, ...more } = page;
      return { node_id: management.node.id, ...more, items: [...flows] };
    },
  );
};
