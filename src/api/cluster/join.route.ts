import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { noQuery } from '#api/requests/query-parameters.js';

const text = z.string().max(1_000_000);
/** The credentials and settings with which a node joins the cluster. */
const AccessSchema = z.object({
  prefix: text,
  endpoints: z.array(text),
  tls: z.object({ ca: text, cert: text, key: text }).nullable(),
  user: z.object({ name: text, password: text }).nullable(),
  seal_key: text.nullable(),
});

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
