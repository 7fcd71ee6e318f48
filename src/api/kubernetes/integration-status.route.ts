import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { NOT_EMPTY, noQuery } from '#api/requests/query-parameters.js';
import { INTEGRATION_STATES, type IntegrationStatus } from '#contracts/kubernetes/integration-status.js';
import { kubernetesSourceSchema } from '#policy/document/policy-schema.js';

const count = z.int().min(0);

const IntegrationStatusSchema = z
  .object({
    name: z.string(),
    state: z
      .enum(INTEGRATION_STATES)
      .describe('`unused`: the policy in force names the integration in no selector, so that nothing is watched.'),
    since: instant.nullable().describe('The time when the state began; null if the integration was never used.'),
    last_error: z
      .object({
        reflector: z.string().describe('The watched objects, such as `pods`.'),
        reason: z.string(),
        at: instant,
      })
      .nullable()
      .describe('The latest failure. It stays after the integration has recovered.'),
    objects: z.object({ pods: count, nodes: count, namespaces: count }),
    selectors: z.array(
      z.object({
        selector: kubernetesSourceSchema,
        resolved: z
          .boolean()
          .describe('False until the objects are known; until then the group of the selector fails closed.'),
        addresses: count.describe('The number of addresses that the selector selects.'),
        networks: count.describe('The number of networks that a selector of nodes with `podCIDRs` selects.'),
      }),
    ),
    warnings: z.array(z.object({ code: z.string(), message: z.string() })),
    stale: z
      .boolean()
      .describe('Whether objects are in force that can be older than those of the API server. They stay in force.'),
  })
  .meta({
    id: 'IntegrationStatus',
    examples: [
      {
        name: 'prod',
        state: 'watching',
        since: '2026-01-31T12:00:00.000Z',
        last_error: null,
        objects: { pods: 120, nodes: 6, namespaces: 9 },
        selectors: [
          {
            selector: { integration: 'prod', pod_selector: { namespace: 'shop', match_labels: { app: 'web' } } },
            resolved: true,
            addresses: 12,
            networks: 0,
          },
        ],
        warnings: [],
        stale: false,
      },
    ],
  });

export const integrationStatusResource: Resource = (api, { kubernetes }) => {
  api.get(
    '/api/v1/integrations/:name/status',
    {
      schema: {
        operationId: 'getIntegrationStatus',
        tags: ['integrations'],
        summary: 'The state of an integration on this node, its objects, and the selectors that name it',
        params: z.object({ name: z.string().min(1, NOT_EMPTY) }),
        querystring: noQuery,
        response: {
          200: IntegrationStatusSchema,
          ...errorAnswers(...errorsOf.read, 'invalid_url', 'not_found', 'store_unavailable', 'feature_unavailable'),
        },
      },
    },
    async (request) => {
      const status = await kubernetes.status(request.params.name);
      if (status === null) throw new ApiError('not_found', 'there is no such integration');
      if ('kind' in status) throw refused(status);
      return shown(status);
    },
  );
};

function shown({
  lastError,
  selectors,
  warnings,
  ...status
}: IntegrationStatus): z.infer<typeof IntegrationStatusSchema> {
  const { name, state, since, objects, stale } = status;
  return {
    name,
    state,
    since,
    last_error: lastError,
    objects,
    selectors: selectors.map(({ selector, resolved, addresses, networks }) => ({
      selector: kubernetesSourceSchema.parse(selector),
      resolved,
      addresses,
      networks,
    })),
    warnings: [...warnings],
    stale,
  };
}
