import { z } from 'zod';
import { formatAddress, formatPrefix, parseAddress } from '#addresses/ip-address.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { NOT_EMPTY, pageLimit } from '#api/requests/query-parameters.js';
import { ownerShape } from '#api/traffic/owner.schema.js';

const addressSchema = z.union([z.ipv4(), z.ipv6()]);
const MemberSchema = z
  .object({
    address: addressSchema,
    ...ownerShape,
  })
  .meta({
    id: 'GroupMember',
    description: 'An address, and the object that owns it.',
    examples: [{ address: '10.244.1.7', integration: 'prod', kind: 'pod', namespace: 'shop', name: 'web-5d4f' }],
  });
const NetworkSchema = z.object({ cidr: z.string(), ...ownerShape }).meta({
  id: 'GroupNetwork',
  description: 'A network of pods that a selector of `podCIDRs` selects, and the node that has it.',
  examples: [{ cidr: '10.244.1.0/24', integration: 'prod', kind: 'node', namespace: null, name: 'worker-1' }],
});
const GroupMembersSchema = z
  .object({
    items: z.array(MemberSchema).describe('Sorted by address, IPv4 first.'),
    networks: z.array(NetworkSchema).describe('Sorted by address, IPv4 first. Empty if the request has `after`.'),
    total: z.int().min(0).describe('The number of all addresses, also of those on other pages.'),
    next: addressSchema.nullable().describe('The value of `after` for the next page; null on the last page.'),
  })
  .meta({ id: 'GroupMembers' });

export const groupMembersResource: Resource = (api, { kubernetes }) => {
  api.get(
    '/api/v1/policies/:id/source-groups/:group_id/members',
    {
      schema: {
        operationId: 'getSourceGroupMembers',
        tags: ['policies'],
        summary: 'List the addresses and networks that the Kubernetes selectors of a source group select on this node',
        description:
          'Only groups of the active policy have members. Addresses of `cidrs` and `ips` are no members. The `podCIDRs` of nodes are in `networks`.',
        params: z.object({
          id: z.string().min(1, NOT_EMPTY).describe('Identifier of the policy.'),
          group_id: z.string().min(1, NOT_EMPTY).describe('Id of the source group, percent-encoded.'),
        }),
        querystring: z.strictObject({
          limit: pageLimit(100, 1_000).describe('The maximum number of members in the response.'),
          after: z
            .string()
            .refine((text) => parseAddress(text) !== undefined, { error: 'Must be an IP address.' })
            .optional()
            .describe('Returns only addresses after this address.'),
        }),
        response: {
          200: GroupMembersSchema,
          ...errorAnswers(
            ...errorsOf.read,
            'invalid_url',
            'not_found',
            'policy_not_active',
            'store_unavailable',
            'feature_unavailable',
          ),
        },
      },
    },
    async ({ params, query }) => {
      const after = query.after === undefined ? null : (parseAddress(query.after) ?? null);
      const found = await kubernetes.members({
        policy: params.id,
        group: params.group_id,
        after,
        limit: query.limit,
      });
      if (found === null) throw new ApiError('not_found', 'there is no such policy, or it has no such source group');
      if ('kind' in found) throw refused(found);
      return {
        items: found.members.map(({ address, owner: { integration, kind, namespace, name } }) => ({
          address: formatAddress(address),
          ...{ integration, kind, namespace, name },
        })),
        networks: found.networks.map(({ prefix, owner: { integration, kind, namespace, name } }) => ({
          cidr: formatPrefix(prefix),
          ...{ integration, kind, namespace, name },
        })),
        total: found.total,
        next: found.next === null ? null : formatAddress(found.next),
      };
    },
  );
};
