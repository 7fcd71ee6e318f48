import { z } from 'zod';
import { authorOf } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { dryRunMember, dryRunQuery, noQuery } from '#api/requests/query-parameters.js';
import type { ClusterView } from '#cluster/operations.js';
import { AccessSchema } from './access.schema.js';

const MemberSchema = z.object({
  id: z.string().describe('The id of the node.'),
  address: z.string().describe('The address of its peer listener.'),
  version: z.string(),
  generation: z.int().min(0).describe('The generation that the node enforces.'),
  since: instant.describe('When the process of the node started.'),
  leads: z.boolean(),
  ipv6: z
    .enum(['drop', 'pass', 'enforce'])
    .nullable()
    .describe(
      'The setting `dataplane.ipv6` of the node; null without a dataplane, and for a node with an older build. A policy with IPv6 needs `enforce` on each node.',
    ),
});
const ClusterSchema = z
  .object({
    enabled: z.boolean().describe('Whether the configuration of this node has a `cluster` section.'),
    node_id: z.string(),
    cluster_id: z.string().nullable().describe('Null before the cluster is created, and without a cluster.'),
    connected: z.boolean().describe('Whether this node follows etcd.'),
    leader: z.string().nullable().describe('The id of the node that leads.'),
    generation: z.int().min(0).describe('The generation that this node enforces.'),
    revision: z.int().min(0).nullable().describe('The revision of etcd that this node has applied.'),
    members: z.array(MemberSchema).nullable().describe('Null while etcd cannot be reached.'),
    unreadable: z
      .array(z.object({ key: z.string().describe('The key in etcd.'), reason: z.string() }))
      .describe('Values of etcd that this node cannot read, so that nothing uses them: the first 100.'),
    unreadable_count: z.int().min(0).describe('The number of these values.'),
    dry_run: dryRunMember,
  })
  .meta({
    id: 'Cluster',
    description: 'The cluster as this node sees it.',
    examples: [
      {
        enabled: false,
        node_id: 'node-a',
        cluster_id: null,
        connected: false,
        leader: null,
        generation: 7,
        revision: null,
        members: null,
        unreadable: [],
        unreadable_count: 0,
      },
    ],
  });
const RecoverySchema = z
  .strictObject({
    keep: z
      .enum(['node', 'store'])
      .describe('Whose policies and settings stay: those of this node, or those of the store in etcd.'),
  })
  .meta({ id: 'ClusterRecovery', examples: [{ keep: 'store' }] });

const answers = {
  200: ClusterSchema,
  ...errorAnswers(...errorsOf.body, 'no_cluster', 'already_exists', 'precondition_failed'),
};

export const clusterResource: Resource = (api, { cluster }) => {
  api.get(
    '/api/v1/cluster',
    {
      schema: {
        operationId: 'getCluster',
        tags: ['cluster'],
        summary: 'Get the cluster and its members',
        querystring: noQuery,
        response: { 200: ClusterSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async () => shown(await cluster.status()),
  );

  api.post(
    '/api/v1/cluster/init',
    {
      schema: {
        operationId: 'initCluster',
        tags: ['cluster'],
        summary: 'Create the cluster in etcd, with the policies and settings of this node',
        description: 'Other nodes with the same prefix follow the cluster as soon as it exists.',
        querystring: dryRunQuery,
        response: answers,
      },
    },
    async (request) => {
      const { dry_run: dryRun = false } = request.query;
      const refusal = await cluster.init({ dryRun, author: authorOf(request) });
      if (refusal !== null) throw refused(refusal);
      return { ...shown(await cluster.status()), ...(dryRun ? { dry_run: true as const } : {}) };
    },
  );

  api.post(
    '/api/v1/cluster/recover',
    {
      schema: {
        operationId: 'recoverCluster',
        tags: ['cluster'],
        summary: 'End a contradiction between this node and etcd',
        description:
          'A node applies and writes nothing while etcd contradicts what the node has applied: after the restore of an old backup, after a loss of data, or with another cluster. ' +
          'This operation chooses the side that stays, and raises the generation above all generations of both sides.',
        querystring: dryRunQuery,
        body: RecoverySchema,
        response: answers,
      },
    },
    async (request) => {
      const { dry_run: dryRun = false } = request.query;
      const refusal = await cluster.recover({ keep: request.body.keep, dryRun, author: authorOf(request) });
      if (refusal !== null) throw refused(refusal);
      return { ...shown(await cluster.status()), ...(dryRun ? { dry_run: true as const } : {}) };
    },
  );
};

const UNREADABLE_SHOWN = 100;

function shown({ nodeId, clusterId, members, leader, revision, ...view }: ClusterView): z.infer<typeof ClusterSchema> {
  return {
    enabled: view.enabled,
    node_id: nodeId,
    cluster_id: clusterId,
    connected: view.connected,
    leader,
    generation: view.generation,
    revision,
    unreadable: view.unreadable.slice(0, UNREADABLE_SHOWN),
    unreadable_count: view.unreadable.length,
    members:
      members === null
        ? null
        : members.map(({ id, address, version, generation, since, ipv6 = null }) => ({
            id,
            address,
            version,
            generation,
            since,
            leads: id === leader,
            ipv6,
          })),
  };
}

/** The route with which a new node joins the cluster. Only the peer listener has it. */
export const joinResource: Resource = (api, { cluster }) => {
  api.post(
    '/api/v1/cluster/join',
    {
      config: { access: { peers: 'public' } },
      schema: {
        operationId: 'joinCluster',
        tags: ['cluster'],
        summary: 'Get what a node needs to join the cluster',
        querystring: noQuery,
        body: z.strictObject({ secret: z.string().max(1_000) }),
        response: { 200: AccessSchema, ...errorAnswers(...errorsOf.body) },
      },
    },
    async ({ body, log, ip }) => {
      const access = await cluster.redeemJoinToken(body.secret);
      if (access === null) throw new ApiError('invalid_token', 'the join token has expired, or was used before');
      log.warn({ remote: ip }, 'a node received the credentials of the cluster with a join token');
      const { sealKey, ...shown } = access;
      return { ...shown, endpoints: [...shown.endpoints], seal_key: sealKey };
    },
  );
};
