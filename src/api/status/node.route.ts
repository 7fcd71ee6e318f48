import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { noQuery } from '#api/requests/query-parameters.js';
import { inForceGeneration, inForceSince } from './in-force.schema.js';

const NodeSchema = z
  .object({
    id: z.string().describe('The id of the node: `node.id` of its configuration.'),
    version: z.string().describe('The version of Weir.'),
    kernel: z.string().describe('The release of the kernel.'),
    started_at: instant.describe('When the process of the node started.'),
    cluster_enabled: z.boolean().describe('Whether the configuration has a `cluster` section.'),
    enforcing: z
      .boolean()
      .nullable()
      .describe(
        'Whether the kernel enforces a policy. False without a `dataplane` section, and before the first policy. ' +
          'Null while the node has not opened the datapath, or has lost it: a policy in the kernel then stays in force, but the node does not know it.',
      ),
    generation: inForceGeneration,
    in_force_since: inForceSince,
  })
  .meta({
    id: 'Node',
    description: 'The node that responds.',
    examples: [
      {
        id: 'node-a',
        version: '0.1.0',
        kernel: '6.12.57+deb13-amd64',
        started_at: '2026-01-31T12:00:00.000Z',
        cluster_enabled: false,
        enforcing: true,
        generation: 7,
        in_force_since: '2026-01-28T08:30:00.000Z',
      },
    ],
  });

export const nodeResource: Resource = (api, management) => {
  api.get(
    '/api/v1/node',
    {
      schema: {
        operationId: 'getNode',
        tags: ['observation'],
        summary: 'Get the id, the version and the generation in force of the node that responds',
        querystring: noQuery,
        response: { 200: NodeSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async () => {
      const { id, version, kernel, startedAt, clusterEnabled } = management.node;
      const { enforcing, generation, since } = management.enforcement();
      return {
        id,
        version,
        kernel,
        started_at: startedAt,
        cluster_enabled: clusterEnabled,
        enforcing,
        generation,
        in_force_since: since,
      };
    },
  );
};
