import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { empty, errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { isUnchanged } from '#api/requests/preconditions.js';
import { noQuery } from '#api/requests/query-parameters.js';
import { keepBody } from '#api/requests/request-body.js';
import { etagOf } from '#contracts/policy/policy-record.js';
import { policySchema } from '#policy/document/policy-schema.js';
import { DryRunSchema, policyWriteQuery, WRITE_ERRORS } from './policy.schema.js';
import { answerPolicy, policyWrite, sendJson } from './policy-answer.js';
import { singletonView } from './policy-json.js';

const EMPTY_POLICY = Buffer.from('{}');

export const policyResource: Resource = (api, { policies }) => {
  api.get(
    '/api/v1/policy',
    {
      schema: {
        operationId: 'getActivePolicy',
        tags: ['policy'],
        summary: 'Get the active policy in singleton form',
        description: 'If no policy is active, the response is an empty PolicyConfig with the ETag `"none"`.',
        querystring: noQuery,
        response: { 200: policySchema, 304: empty, ...errorAnswers(...errorsOf.read, 'store_unavailable') },
      },
    },
    async (request, reply) => {
      const stored = await policies.read({ by: 'active' });
      reply.header('weir-generation', policies.generation());
      if (isUnchanged(request, reply, etagOf(stored?.record ?? null))) return reply.code(304).send();
      return sendJson(reply, stored === null ? EMPTY_POLICY : singletonView(stored));
    },
  );

  api.put(
    '/api/v1/policy',
    {
      config: { policyBody: true },
      validatorCompiler: keepBody,
      schema: {
        operationId: 'putActivePolicy',
        tags: ['policy'],
        summary: 'Write the active policy in singleton form',
        description:
          'The active record keeps its mode. If no policy is active, the record named `default` is written with the mode `enforce`. ' +
          'The header `Weir-Warnings` contains the codes of warnings; a dry run returns the record and the warnings.',
        querystring: policyWriteQuery,
        body: policySchema,
        response: { 200: z.union([policySchema, DryRunSchema]), ...errorAnswers(...WRITE_ERRORS) },
      },
    },
    async (request, reply) => {
      const write = policyWrite(request, { operation: 'put', target: { by: 'active' }, form: 'singleton' });
      return answerPolicy(await policies.write(write), 'singleton', reply);
    },
  );
};
