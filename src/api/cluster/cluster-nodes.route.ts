import { z } from 'zod';
import { authorOf } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import type { Management } from '#api/management.js';
import { coverageShape, ONE_NODE } from '#api/nodes/ask-nodes.js';
import { empty, errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { dryRunQuery, NOT_EMPTY, noQuery } from '#api/requests/query-parameters.js';
import { inForceSince } from '#api/status/in-force.schema.js';
import type { ClusterNode } from '#cluster/operations.js';

/** A clock difference between two nodes is shown only if it is at least this many milliseconds. */
const LEAST_MS = 1_000;

const NodeSchema = z
  .object({
    node_id: z.string(),
    address: z.string().describe('The address of its peer listener.'),
    version: z.string(),
    joined_at: instant,
    state: z
      .enum(['ready', 'not_ready', 'no_response', 'absent'])
      .describe(
        '`no_response`: the node is a member, and does not respond to this node. `absent`: the node is not a member at present.',
      ),
    failing_checks: z.array(z.string()).describe('The readiness checks that fail.'),
    error: z.string().nullable().describe('Why the node did not respond.'),
    generation: z
      .int()
      .min(0)
      .nullable()
      .describe(
        'The generation that the node enforces. Null if the node does not respond and is no member at present.',
      ),
    started_at: instant.nullable(),
    in_force_since: inForceSince,
    clock_offset: z
      .int()
      .nullable()
      .describe(
        'How many seconds the clock of the node is ahead of the median of the clocks of all nodes; 0 if they differ by at most 1 s. Null if the node did not respond.',
      ),
  })
  .meta({ id: 'ClusterNode' });
const NodesSchema = z
  .object({ items: z.array(NodeSchema), ...coverageShape })
  .meta({ id: 'ClusterNodes', description: 'All nodes that have joined the cluster, whether they run or not.' });
const JoinTokenSchema = z
  .object({
    token: z.string().describe('For `weir cluster join`. It gives one node access to the cluster.'),
    expires_at: instant,
  })
  .meta({ id: 'JoinToken' });

const readiness = z.looseObject({
  ready: z.boolean(),
  // Absent in the response of a node with an older build.
  time: z.iso.datetime().optional(),
  generation: z.int().min(1).nullish(),
  in_force_since: z.iso.datetime().nullish(),
  checks: z.array(z.looseObject({ name: z.string(), ok: z.boolean() })),
});
type Readiness = {
  readonly ready: boolean;
  readonly generation?: number | null | undefined;
  readonly in_force_since?: string | null | undefined;
  readonly checks: readonly { readonly name: string; readonly ok: boolean }[];
};
type Shown = z.infer<typeof NodeSchema>;

export const clusterNodesResource: Resource = (api, management) => {
  const { cluster } = management;
  api.get(
    '/api/v1/cluster/nodes',
    {
      schema: {
        operationId: 'listClusterNodes',
        tags: ['cluster'],
        summary: 'List the nodes of the cluster and their readiness',
        description: 'Asks each node for its readiness. A node without cluster has no nodes.',
        querystring: noQuery,
        response: { 200: NodesSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async () => nodesOf(management),
  );

  api.delete(
    '/api/v1/cluster/nodes/:id',
    {
      schema: {
        operationId: 'removeClusterNode',
        tags: ['cluster'],
        summary: 'Remove a node from the cluster',
        description:
          'The node loses its membership and its API tokens at once, and cannot join again with its data folder. It enforces its last policy until it is stopped. The node still knows the credentials of etcd.',
        params: z.object({ id: z.string().min(1, NOT_EMPTY) }),
        querystring: dryRunQuery,
        response: {
          204: empty,
          ...errorAnswers(...errorsOf.write, 'not_found', 'no_cluster', 'precondition_failed'),
        },
      },
    },
    async (request, reply) => {
      const { dry_run: dryRun = false } = request.query;
      const refusal = await cluster.remove({ id: request.params.id, author: authorOf(request), dryRun });
      if (refusal !== null) throw refused(refusal);
      return reply.code(204).send();
    },
  );

  api.post(
    '/api/v1/cluster/join-tokens',
    {
      schema: {
        operationId: 'createJoinToken',
        tags: ['cluster'],
        summary: 'Create a token with which one node can join the cluster',
        description:
          'A dry run issues nothing, and returns 204. The token is valid for one hour and for one node. The joining node connects to the peer listener of this node, and receives the credentials of etcd and the sealing key.',
        querystring: dryRunQuery,
        response: { 201: JoinTokenSchema, 204: empty, ...errorAnswers(...errorsOf.write, 'no_cluster') },
      },
    },
    async (request, reply) => {
      if (request.query.dry_run === true) return reply.code(204).send();
      const issued = cluster.issueJoinToken();
      if ('kind' in issued) throw refused(issued);
      return reply.code(201).send({ token: issued.token, expires_at: issued.expiresAt.toISOString() });
    },
  );
};

async function nodesOf(management: Management): Promise<z.infer<typeof NodesSchema>> {
  const nodes = await management.cluster.nodes();
  const self = management.findings.nodeId;
  const { generation, since } = management.enforcement();
  const found = new Map<string, Readiness>([[self, { ...management.readiness(), generation, in_force_since: since }]]);
  const ahead = new Map([[self, 0]]);
  const errors = new Map<string, string>();
  const { failures } = await management.peers.askAll('/ready', ({ node, status, body, tookMs }) => {
    const read = readiness.safeParse(body);
    if (read.success) found.set(node, read.data);
    else errors.set(node, `it responded with the status ${status}`);
    if (read.data?.time !== undefined) ahead.set(node, aheadMs(read.data.time, tookMs));
  });
  for (const { node, error } of failures) errors.set(node, error);
  const offsets = clockOffsets(ahead);
  const items = nodes.map((node) => ({
    ...shown(node, found.get(node.id), errors.get(node.id) ?? null),
    clock_offset: offsets.get(node.id) ?? null,
  }));
  const silent = items.filter(({ error }) => error !== null);
  return {
    items,
    ...ONE_NODE,
    partial: silent.length > 0,
    node_errors: silent.map(({ node_id, error }) => ({ node_id, error: error ?? '' })),
    nodes_queried: items.length,
    nodes_responded: items.length - silent.length,
  };
}

function shown(
  { member, ...node }: ClusterNode,
  report: Readiness | undefined,
  error: string | null,
): Omit<Shown, 'clock_offset'> {
  const answered = report?.ready === true ? 'ready' : 'not_ready';
  return {
    node_id: node.id,
    address: node.address,
    version: node.version,
    joined_at: node.joinedAt,
    state: report !== undefined ? answered : member === null ? 'absent' : 'no_response',
    failing_checks: (report?.checks ?? []).filter(({ ok }) => !ok).map(({ name }) => name),
    error: report === undefined ? error : null,
    // While etcd is unreachable, only the report of the node itself contains its generation.
    generation: report?.generation ?? member?.generation ?? null,
    started_at: member?.since ?? null,
    in_force_since: report?.in_force_since ?? null,
  };
}

/**
 * Returns how far the clock of a node is ahead of the clock of this node, in milliseconds. `time` is the time
 * in a response that has just arrived, and `tookMs` the round trip in milliseconds. The result is wrong by at
 * most half the round trip.
 */
function aheadMs(time: string, tookMs: number): number {
  return Date.parse(time) - (Date.now() - tookMs / 2);
}

/**
 * Returns for each node how many seconds its clock is ahead of the median of all clocks. Because of the
 * median and whole seconds, all nodes return the same result. `ahead`: for each node, how far its clock is
 * ahead, in milliseconds.
 */
function clockOffsets(ahead: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const sorted = [...ahead.values()].sort((a, b) => a - b);
  const median = sorted[(sorted.length - 1) >> 1] ?? 0;
  const seconds = (ms: number): number => (Math.abs(ms) > LEAST_MS ? Math.round(ms / 1_000) : 0);
  return new Map([...ahead].map(([node, ms]) => [node, seconds(ms - median)]));
}
