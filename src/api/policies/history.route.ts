import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import { empty, errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { isUnchanged } from '#api/requests/preconditions.js';
import { NOT_EMPTY, noQuery, pageLimit, wholeNumber } from '#api/requests/query-parameters.js';
import { etagOf, type PolicyRevision } from '#contracts/policy/policy-record.js';
import { type PolicyEvent, VIAS } from '#contracts/policy/revision.js';
import { storedPolicySchema } from '#policy/document/policy-schema.js';
import {
  CHANGE_ERRORS,
  DryRunSchema,
  policyWriteQuery,
  recordExample,
  recordMembers,
  WrittenPolicySchema,
} from './policy.schema.js';
import { answerPolicy, policyWrite, sendJson } from './policy-answer.js';
import { withPolicy } from './policy-json.js';

const byId = z.object({ id: z.string().min(1, NOT_EMPTY).describe('Identifier of the policy.') });
const byRevision = byId.extend({ revision: wholeNumber(1).describe('Number of the revision.') });
const CountsSchema = z.object({ added: z.int().min(0), changed: z.int().min(0), removed: z.int().min(0) });
const overrides = z
  .array(z.string())
  .describe('The assertions that the write broke, and that its author named in `?override`.');
const EventSchema = z
  .object({
    by: z.string(),
    at: instant,
    comment: z.string().nullable(),
    overrides,
    generation: z.int().nullable().describe('Null if the policy in force did not change.'),
  })
  .nullable();
const revisionMembers = {
  ...recordMembers,
  active: z.boolean().describe('Whether this is the present revision of the active policy.'),
  via: z
    .enum(VIAS)
    .nullable()
    .describe(
      'The operation that wrote the revision. `rollout`: any write that was rolled out in stages. Null if an older build wrote it.',
    ),
  comment: z.string().nullable(),
  overrides,
  generation: z
    .int()
    .nullable()
    .describe('The generation of the write; null if the write did not activate the policy, or if it is unknown.'),
  source_group: z.string().nullable().describe('The source group that the write changed, if it changed only one.'),
  of_revision: z.int().nullable().describe('The revision whose document a rollback or a revert wrote again.'),
  size: z
    .object({
      groups: CountsSchema,
      rules: CountsSchema,
      other: z
        .boolean()
        .describe(
          'Whether something else differs: the name, form, mode, `default_policy`, or the order of groups or rules.',
        ),
    })
    .nullable()
    .describe(
      'The difference from the document of the revision before. Groups and rules are compared by their ids as JSON values; the rules of an added or removed group count too. Null if it is unknown.',
    ),
  bytes: z.int().nullable().describe('The size of what the write has added to the store; null if it is unknown.'),
  activated: EventSchema.describe('The last activation of this revision without a write.'),
  removed: EventSchema.describe('The removal of the policy, if this was its last revision.'),
};
const revisionExample = {
  ...recordExample,
  via: 'group_write',
  comment: 'CHG-1042: printers of the second floor',
  overrides: [],
  generation: 17,
  source_group: 'printers',
  of_revision: null,
  size: {
    groups: { added: 0, changed: 1, removed: 0 },
    rules: { added: 2, changed: 0, removed: 1 },
    other: false,
  },
  bytes: 18_211,
  activated: null,
  removed: null,
};
const RevisionSchema = z.object(revisionMembers).meta({
  id: 'PolicyRevision',
  description: 'A revision of a policy without its body, and how it was written.',
  examples: [revisionExample],
});
const HistorySchema = z
  .object({
    items: z.array(RevisionSchema),
    next_cursor: z.string().nullable().describe('The `cursor` of the next page; null on the last page.'),
  })
  .meta({ id: 'PolicyHistory', description: 'Revisions of a policy, the newest first.' });
const StoredRevisionSchema = z.object({ ...revisionMembers, policy: storedPolicySchema }).meta({
  id: 'StoredPolicyRevision',
  description: 'A revision of a policy, and how it was written. Values are returned as the client sent them.',
  examples: [{ ...revisionExample, policy: { default_policy: 'deny', source_groups: [] } }],
});
const RollbackSchema = z
  .strictObject({ revision: z.int().min(1).describe('The revision whose document is written again.') })
  .meta({ id: 'PolicyRollback', examples: [{ revision: 12 }] });
const historyQuery = z.strictObject({
  limit: pageLimit(50, 500).describe('The largest number of revisions in the response.'),
  cursor: wholeNumber(1).optional().describe('`next_cursor` of the page before.'),
});
const PATH = '/api/v1/policies/:id/history';
const DESCRIPTION =
  'The history of a deleted policy stays. `policy.history` in the configuration limits how many revisions are kept.';

/** The revisions of a policy (B3). */
export const historyResource: Resource = (api, { policies }) => {
  api.get(
    PATH,
    {
      schema: {
        operationId: 'listPolicyRevisions',
        tags: ['policies'],
        summary: 'List the revisions of a policy, the newest first, without their bodies',
        description: DESCRIPTION,
        params: byId,
        querystring: historyQuery,
        response: {
          200: HistorySchema,
          ...errorAnswers(...errorsOf.read, 'invalid_url', 'not_found', 'store_unavailable'),
        },
      },
    },
    async ({ params: { id }, query: { limit, cursor } }, reply) => {
      const page = { limit: limit + 1, ...(cursor === undefined ? {} : { before: cursor }) };
      const found = await policies.history(id, page);
      if (found.length === 0 && cursor === undefined) throw new ApiError('not_found', 'there is no such policy');
      const items = found.slice(0, limit);
      reply.header('weir-generation', policies.generation());
      return {
        items: items.map(shown),
        next_cursor: found.length > limit ? String(items.at(-1)?.revision) : null,
      };
    },
  );

  api.get(
    `${PATH}/:revision`,
    {
      schema: {
        operationId: 'getPolicyRevision',
        tags: ['policies'],
        summary: 'Get a revision of a policy',
        params: byRevision,
        querystring: noQuery,
        response: {
          200: StoredRevisionSchema,
          304: empty,
          ...errorAnswers(...errorsOf.read, 'invalid_url', 'not_found', 'store_unavailable'),
        },
      },
    },
    async (request, reply) => {
      const { id, revision } = request.params;
      const found = await policies.revision(id, revision);
      if (found === null) throw new ApiError('not_found', `the history of the policy has no revision ${revision}`);
      reply.header('weir-generation', policies.generation());
      if (isUnchanged(request, reply, etagOf(found.record))) return reply.code(304).send();
      return sendJson(reply, withPolicy({ record: shown(found.record), body: found.body }));
    },
  );

  api.post(
    '/api/v1/policies/:id/rollback',
    {
      schema: {
        operationId: 'rollBackPolicy',
        tags: ['policies'],
        summary: 'Write the document of an earlier revision again, and activate it unless its mode is `disabled`',
        description:
          'The policy gets a new revision with the form, the mode and the text of the earlier one, and keeps its name. The write takes ' +
          'all steps of `PUT /api/v1/policies/:id`. A deleted policy is created again, with its last name if no other policy has it. If the document is no longer valid, the response is `cannot_activate`.',
        params: byId,
        querystring: policyWriteQuery,
        body: RollbackSchema,
        response: {
          200: z.union([WrittenPolicySchema, DryRunSchema]),
          201: WrittenPolicySchema,
          ...errorAnswers(
            ...CHANGE_ERRORS,
            ...errorsOf.body,
            'cannot_activate',
            'capacity_exceeded',
            'would_deactivate',
            'proof_failed',
          ),
        },
      },
    },
    async (request, reply) => {
      const target = { by: 'id', id: request.params.id } as const;
      const write = policyWrite(request, { operation: 'rollback', target, form: 'envelope' });
      const { revision } = request.body;
      return answerPolicy(await policies.write({ ...write, revision }), 'envelope', reply);
    },
  );
};

function shown({ facts, ...record }: PolicyRevision): z.infer<typeof RevisionSchema> {
  return {
    ...record,
    via: facts.via ?? null,
    comment: facts.comment ?? null,
    overrides: [...(facts.overrides ?? [])],
    generation: facts.generation ?? null,
    source_group: facts.source_group ?? null,
    of_revision: facts.of_revision ?? null,
    size: facts.size ?? null,
    bytes: facts.bytes ?? null,
    activated: shownEvent(facts.activated),
    removed: shownEvent(facts.removed),
  };
}

function shownEvent(event: PolicyEvent | undefined): z.infer<typeof EventSchema> {
  if (event === undefined) return null;
  const { by, at, comment = null, overrides = [], generation = null } = event;
  return { by, at, comment, overrides: [...overrides], generation };
}
