import { z } from 'zod';
import { authorOf } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { commentQuery, dryRunMember, dryRunQuery, noQuery, wholeNumber } from '#api/requests/query-parameters.js';
import type { ChangeView } from '#policies/pending-changes.js';

const NodeSchema = z.object({
  id: z.string(),
  healthy: z.boolean(),
  fault: z.string().nullable().describe('Why the node is not healthy.'),
});
const PendingSchema = z.object({
  kind: z.enum(['confirm', 'rollout']),
  generation: z.int().min(1).describe('The generation of the write.'),
  generation_before: z.int().min(0).describe('The generation that was in force before.'),
  written_at: instant,
  written_by: z.string(),
  ends_at: instant.describe(
    'An estimate of the time when the change is reverted, or when all nodes enforce it. etcd can measure a longer time.',
  ),
  share: z.int().nullable().describe('The percentage of the nodes that enforce a roll-out first.'),
  nodes: z
    .array(NodeSchema)
    .nullable()
    .describe('The nodes that enforce a roll-out first. Null while etcd cannot be reached.'),
});
const ChangeSchema = z
  .object({
    pending: PendingSchema.nullable(),
    reverted: z
      .object({ generation: z.int().min(1), reverted_at: instant, reason: z.string() })
      .nullable()
      .describe('The last change that was reverted. Null after a later write that changed the policy in force.'),
    ended: z.int().nullable().optional().describe('The generation of the change that this request has ended.'),
    dry_run: dryRunMember,
  })
  .meta({
    id: 'PendingChange',
    description: 'The policy write that is reverted unless it is confirmed, or its roll-out succeeds.',
    examples: [
      {
        pending: {
          kind: 'rollout',
          generation: 42,
          generation_before: 41,
          written_at: '2026-02-01T08:30:00.000Z',
          written_by: 'admin',
          ends_at: '2026-02-01T08:35:00.000Z',
          share: 10,
          nodes: [{ id: 'node-a', healthy: true, fault: null }],
        },
        reverted: null,
      },
    ],
  });
const endQuery = dryRunQuery.extend({
  generation: wholeNumber(1).optional().describe('Ends the pending change only if it has this generation.'),
});
const revertQuery = endQuery.extend({ comment: commentQuery });
const PATH = '/api/v1/policy/pending';
const ENDS = {
  complete: {
    path: 'confirm',
    operationId: 'confirmPendingChange',
    summary: 'Confirm the pending policy change',
    description: 'The change stays in force. A roll-out reaches all nodes now.',
  },
  revert: {
    path: 'revert',
    operationId: 'revertPendingChange',
    summary: 'Revert the pending policy change now',
    description: 'The policy before the change becomes active again, with a new revision and a new generation.',
  },
} as const;

/**
 * The pending change: a policy write that is reverted unless it is confirmed in time, or if its roll-out
 * fails.
 */
export const pendingChangeResource: Resource = (api, { pendingChange, policies }) => {
  api.get(
    PATH,
    {
      schema: {
        operationId: 'getPendingChange',
        tags: ['policy'],
        summary: 'Get the pending policy change, and the last change that was reverted',
        querystring: noQuery,
        response: { 200: ChangeSchema, ...errorAnswers(...errorsOf.read, 'store_unavailable') },
      },
    },
    async () => shown(await pendingChange.read()),
  );

  for (const outcome of ['complete', 'revert'] as const) {
    const { path, ...described } = ENDS[outcome];
    api.post(
      `${PATH}/${path}`,
      {
        schema: {
          ...described,
          tags: ['policy'],
          querystring: outcome === 'revert' ? revertQuery : endQuery,
          response: { 200: ChangeSchema, ...errorAnswers(...errorsOf.write, 'not_found', 'change_pending') },
        },
      },
      async (request, reply) => {
        const query: z.infer<typeof revertQuery> = request.query;
        const { dry_run: dryRun = false, generation, comment } = query;
        const end = await pendingChange.end({ outcome, generation, comment, author: authorOf(request), dryRun });
        if (end.kind === 'refused') throw refused(end);
        reply.header('weir-generation', policies.generation());
        if (!end.isEnforced) reply.header('weir-warnings', 'not_enforced');
        const now = { ...shown(await pendingChange.read()), ended: dryRun ? null : end.generation };
        return dryRun ? { ...now, dry_run: true as const } : now;
      },
    );
  }
};

function shown({ pending, reverted }: ChangeView): z.infer<typeof ChangeSchema> {
  return {
    pending: pending === null ? null : shownPending(pending),
    reverted: reverted && { generation: reverted.generation, reverted_at: reverted.at, reason: reverted.reason },
  };
}

function shownPending({ terms, at, ...change }: NonNullable<ChangeView['pending']>): z.infer<typeof PendingSchema> {
  const ms = terms.kind === 'confirm' ? terms.within_ms : terms.hold_ms;
  return {
    kind: terms.kind,
    generation: change.generation,
    generation_before: change.before.generation,
    written_at: at,
    written_by: change.by,
    ends_at: new Date(Date.parse(at) + ms).toISOString(),
    share: terms.kind === 'rollout' ? terms.share : null,
    nodes: change.nodes?.map(({ node, fault }) => ({ id: node, healthy: fault === null, fault })) ?? null,
  };
}
