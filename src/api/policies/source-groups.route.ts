import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import { empty, errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { isUnchanged } from '#api/requests/preconditions.js';
import { NOT_EMPTY, noQuery } from '#api/requests/query-parameters.js';
import { keepBody } from '#api/requests/request-body.js';
import { etagOf } from '#contracts/policy/policy-record.js';
import { pathGroupSchema, storedGroupSchema } from '#policy/document/policy-schema.js';
import { CHANGE_ERRORS, DryGroupSchema, policyWriteQuery, WRITE_ERRORS, WrittenGroupSchema } from './policy.schema.js';
import { answerGroup, policyWrite, sendJson, type WriteRequest } from './policy-answer.js';

const PATH = '/api/v1/policies/:id/source-groups/:group_id';
const path = z.object({
  id: z.string().min(1, NOT_EMPTY).describe('Identifier of the policy.'),
  group_id: z.string().min(1, NOT_EMPTY).describe('Id of the source group, percent-encoded.'),
});
type GroupWriteRequest = WriteRequest & { readonly params: z.infer<typeof path> };
const POINTERS =
  'Pointers of problems and warnings refer to the body. Pointers about other groups begin with `/policy` and refer to the ' +
  'record that `GET /api/v1/policies/:id` returns.';

/** A write gives the same result as a write of the whole policy with the changed group. */
export const sourceGroupsResource: Resource = (api, { policies }) => {
  const write = async (request: GroupWriteRequest, reply: FastifyReply, operation: 'put' | 'delete') => {
    const { id, group_id: sourceGroup } = request.params;
    const wanted = policyWrite(request, { operation, target: { by: 'id', id }, sourceGroup, form: 'envelope' });
    return answerGroup(await policies.write(wanted), wanted, reply);
  };

  api.get(
    PATH,
    {
      schema: {
        operationId: 'getSourceGroup',
        tags: ['policies'],
        summary: 'Get one source group of a stored policy',
        description:
          'Returns the group as it was sent, so that a client can change it and write it back. The ETag is the ETag of the policy.',
        params: path,
        querystring: noQuery,
        response: {
          200: storedGroupSchema,
          304: empty,
          ...errorAnswers(...errorsOf.read, 'invalid_url', 'not_found', 'store_unavailable', 'feature_unavailable'),
        },
      },
    },
    async (request, reply) => {
      const { id, group_id: group } = request.params;
      const found = await policies.readGroup(id, group);
      if (found === null) throw new ApiError('not_found', 'there is no such policy, or it has no such source group');
      if ('kind' in found) throw refused(found);
      reply.header('weir-generation', policies.generation());
      if (isUnchanged(request, reply, etagOf(found.record))) return reply.code(304).send();
      return sendJson(reply, found.body);
    },
  );

  api.put(
    PATH,
    {
      config: { policyBody: true },
      validatorCompiler: keepBody,
      schema: {
        operationId: 'putSourceGroup',
        tags: ['policies'],
        summary: 'Write one source group of a stored policy, and activate the policy unless its mode is `disabled`',
        description:
          'Replaces the group with this id at its position, or appends a new group; `priority` determines when a new group ' +
          'is evaluated. The policy gets a new revision, and all other groups stay unchanged. The body has the form of the policy: ' +
          'with a `mode` in the singleton form, without a `mode` in the envelope form. Its `id` is the id in the path, or absent. ' +
          `If-Match compares the ETag of the policy; If-None-Match \`*\` writes only a group that does not exist yet. ${POINTERS}`,
        params: path,
        querystring: policyWriteQuery,
        body: pathGroupSchema,
        response: {
          200: z.union([WrittenGroupSchema, DryGroupSchema]),
          201: WrittenGroupSchema,
          ...errorAnswers(...WRITE_ERRORS, 'invalid_url', 'not_found', 'feature_unavailable'),
        },
      },
    },
    async (request, reply) => write(request, reply, 'put'),
  );

  api.delete(
    PATH,
    {
      schema: {
        operationId: 'deleteSourceGroup',
        tags: ['policies'],
        summary: 'Remove one source group of a stored policy, and activate the policy unless its mode is `disabled`',
        description:
          'The policy gets a new revision, and all other groups stay unchanged. Groups without `priority` after the ' +
          `removed group move up by one position. The header \`Weir-Warnings\` contains the codes of warnings. ${POINTERS}`,
        params: path,
        querystring: policyWriteQuery,
        response: {
          200: DryGroupSchema,
          204: empty,
          ...errorAnswers(
            ...CHANGE_ERRORS,
            'invalid_policy',
            'capacity_exceeded',
            'would_deactivate',
            'feature_unavailable',
          ),
        },
      },
    },
    async (request, reply) => write(request, reply, 'delete'),
  );
};
