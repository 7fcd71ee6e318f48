import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import { empty, errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { isUnchanged } from '#api/requests/preconditions.js';
import { NOT_EMPTY, noQuery } from '#api/requests/query-parameters.js';
import { keepBody } from '#api/requests/request-body.js';
import { etagOf } from '#contracts/policy/policy-record.js';
import type { PolicyTarget, PolicyWrite } from '#contracts/policy/policy-write.js';
import type { PolicyChoice } from '#policies/operations.js';
import { isValidName, NAME_RULE } from '#policy/check/validation/validate.js';
import { envelopeSchema, policySchema } from '#policy/document/policy-schema.js';
import {
  activationQuery,
  CHANGE_ERRORS,
  DryRunSchema,
  PolicyListSchema,
  policyWriteQuery,
  recordWriteQuery,
  StoredPolicySchema,
  WRITE_ERRORS,
  WrittenPolicySchema,
} from './policy.schema.js';
import { answerPolicy, policyWrite, sendJson, type WriteRequest } from './policy-answer.js';
import { withPolicy } from './policy-json.js';

const byId = z.object({ id: z.string().min(1, NOT_EMPTY).describe('Identifier of the record.') });
const byName = z.object({
  name: z.string().min(1, NOT_EMPTY).describe('Name of the record, compared case-insensitively.'),
});
const byNewName = z.object({
  name: z
    .string()
    .refine(isValidName, { error: NAME_RULE })
    .describe('Name of the record: 1 to 253 printable characters, trimmed, and compared case-insensitively.'),
});
const written = z.union([WrittenPolicySchema, DryRunSchema]);
const withBody = {
  config: { policyBody: true },
  validatorCompiler: keepBody,
} as const;
const readAnswers = {
  200: StoredPolicySchema,
  304: empty,
  ...errorAnswers(...errorsOf.read, 'invalid_url', 'not_found', 'store_unavailable'),
};

export const policiesResource: Resource = (api, { policies }) => {
  const read = async (request: FastifyRequest, reply: FastifyReply, which: PolicyChoice) => {
    const stored = await policies.read(which);
    if (stored === null) throw new ApiError('not_found', 'there is no such policy');
    reply.header('weir-generation', policies.generation());
    if (isUnchanged(request, reply, etagOf(stored.record))) return reply.code(304).send();
    return sendJson(reply, withPolicy(stored));
  };
  const write = async (
    request: WriteRequest,
    reply: FastifyReply,
    target: PolicyTarget,
    { operation = 'put', form = 'envelope' }: Partial<Pick<PolicyWrite, 'operation' | 'form'>> = {},
  ) => answerPolicy(await policies.write(policyWrite(request, { operation, target, form })), 'envelope', reply);

  api.get(
    '/api/v1/policies',
    {
      schema: {
        operationId: 'listPolicies',
        tags: ['policies'],
        summary: 'List the stored policies, without their bodies',
        querystring: noQuery,
        response: { 200: PolicyListSchema, ...errorAnswers(...errorsOf.read, 'store_unavailable') },
      },
    },
    async (_request, reply) => {
      reply.header('weir-generation', policies.generation());
      return { items: [...(await policies.list())] };
    },
  );

  api.post(
    '/api/v1/policies',
    {
      ...withBody,
      schema: {
        operationId: 'createPolicy',
        tags: ['policies'],
        summary: 'Store a new policy, and activate it unless its mode is `disabled`',
        querystring: policyWriteQuery,
        body: envelopeSchema,
        response: { 200: DryRunSchema, 201: WrittenPolicySchema, ...errorAnswers(...WRITE_ERRORS) },
      },
    },
    async (request, reply) => write(request, reply, { by: 'new' }),
  );

  api.get(
    '/api/v1/policies/:id',
    {
      schema: {
        operationId: 'getPolicy',
        tags: ['policies'],
        summary: 'Get a stored policy',
        params: byId,
        querystring: noQuery,
        response: readAnswers,
      },
    },
    async (request, reply) => read(request, reply, { by: 'id', id: request.params.id }),
  );

  api.put(
    '/api/v1/policies/:id',
    {
      ...withBody,
      schema: {
        operationId: 'replacePolicy',
        tags: ['policies'],
        summary: 'Replace a stored policy, and activate it unless its mode is `disabled`',
        params: byId,
        querystring: recordWriteQuery,
        body: z.union([envelopeSchema, policySchema]),
        response: { 200: written, ...errorAnswers(...WRITE_ERRORS, 'invalid_url', 'not_found') },
      },
    },
    async (request, reply) => write(request, reply, { by: 'id', id: request.params.id }, { form: request.query.form }),
  );

  api.delete(
    '/api/v1/policies/:id',
    {
      schema: {
        operationId: 'deletePolicy',
        tags: ['policies'],
        summary: 'Delete a stored policy',
        description:
          'If the active policy is deleted, no policy is active: `policy.fallback` decides, and the header `Weir-Warnings` contains a warning.',
        params: byId,
        querystring: activationQuery,
        response: {
          200: DryRunSchema,
          204: empty,
          ...errorAnswers(...CHANGE_ERRORS, 'proof_failed'),
        },
      },
    },
    async (request, reply) => write(request, reply, { by: 'id', id: request.params.id }, { operation: 'delete' }),
  );

  api.post(
    '/api/v1/policies/:id/activate',
    {
      schema: {
        operationId: 'activatePolicy',
        tags: ['policies'],
        summary: 'Activate a stored policy without rewriting it',
        description:
          'The record keeps its revision and its ETag. The previously active policy stays stored, and a warning in the response names it. ' +
          'If the policy is active already, nothing changes. The exception is a restored data folder: the policy then replaces ' +
          'the later one that the kernel enforces.',
        params: byId,
        querystring: activationQuery,
        response: {
          200: written,
          ...errorAnswers(...CHANGE_ERRORS, 'cannot_activate', 'capacity_exceeded', 'proof_failed'),
        },
      },
    },
    async (request, reply) => write(request, reply, { by: 'id', id: request.params.id }, { operation: 'activate' }),
  );

  api.get(
    '/api/v1/policies/by-name/:name',
    {
      schema: {
        operationId: 'getPolicyByName',
        tags: ['policies'],
        summary: 'Get a stored policy by its name',
        params: byName,
        querystring: noQuery,
        response: readAnswers,
      },
    },
    async (request, reply) => read(request, reply, { by: 'name', name: request.params.name }),
  );

  api.put(
    '/api/v1/policies/by-name/:name',
    {
      ...withBody,
      schema: {
        operationId: 'putPolicyByName',
        tags: ['policies'],
        summary: 'Create or replace the policy with this name',
        params: byNewName,
        querystring: recordWriteQuery,
        body: z.union([envelopeSchema, policySchema]),
        response: {
          200: written,
          201: WrittenPolicySchema,
          ...errorAnswers(...WRITE_ERRORS, 'invalid_url'),
        },
      },
    },
    async (request, reply) =>
      write(request, reply, { by: 'name', name: request.params.name }, { form: request.query.form }),
  );
};
