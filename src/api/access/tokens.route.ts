import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import { empty, errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { dryRunQuery, NOT_EMPTY, noQuery } from '#api/requests/query-parameters.js';
import type { TokenRecord } from '#store/store-types.js';

const YEAR_SECONDS = 366 * 24 * 60 * 60;

const TokenSchema = z
  .object({
    id: z.string(),
    subject: z.string(),
    role: z.enum(['admin', 'readonly']),
    created_at: instant,
    expires_at: instant.nullable(),
    revoked_at: instant.nullable(),
  })
  .meta({ id: 'Token', description: 'The stored data of a token. The token itself is never stored.' });
const TokenListSchema = z.object({ items: z.array(TokenSchema) }).meta({ id: 'TokenList' });
const TokenCreateSchema = z
  .strictObject({
    subject: z
      .string()
      .regex(/^[\w.@:-]{1,128}$/, { error: 'Must be 1 to 128 letters, digits, and any of . _ @ : -' })
      .describe('The user of the token; writes are recorded under this name.'),
    role: z.enum(['admin', 'readonly']),
    expires_in: z
      .int()
      .min(1)
      .max(10 * YEAR_SECONDS)
      .nullable()
      .optional()
      .describe('Seconds. Omitted or null: the token does not expire.'),
  })
  .meta({ id: 'TokenCreate', examples: [{ subject: 'dashboard', role: 'readonly', expires_in: 86_400 }] });
const IssuedTokenSchema = z
  .object({ ...TokenSchema.shape, token: z.string().describe('The token. It cannot be shown again.') })
  .meta({ id: 'IssuedToken' });

const PATH = '/api/v1/tokens';

export const tokensResource: Resource = (api, { tokens }) => {
  api.get(
    PATH,
    {
      schema: {
        operationId: 'listTokens',
        tags: ['tokens'],
        summary: 'List the issued tokens',
        description: 'With the role `readonly`, the response contains only the token of the request.',
        querystring: noQuery,
        response: { 200: TokenListSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async ({ caller }) => ({
      items: tokens
        .list()
        .filter(({ id }) => caller?.role === 'admin' || id === caller?.id)
        .map(shown),
    }),
  );

  api.post(
    PATH,
    {
      schema: {
        operationId: 'createToken',
        tags: ['tokens'],
        summary: 'Issue a token',
        description: 'A dry run checks the body, issues nothing, and returns 204.',
        querystring: dryRunQuery,
        body: TokenCreateSchema,
        response: { 201: IssuedTokenSchema, 204: empty, ...errorAnswers(...errorsOf.body) },
      },
    },
    async (request, reply) => {
      if (request.query.dry_run === true) return reply.code(204).send();
      const { subject, role, expires_in: expiresIn } = request.body;
      const expiresInMs = expiresIn === undefined || expiresIn === null ? null : expiresIn * 1000;
      const { record, token } = await tokens.issue({ subject, role, expiresInMs });
      return reply.code(201).send({ ...shown(record), token });
    },
  );

  api.delete(
    `${PATH}/:id`,
    {
      schema: {
        operationId: 'revokeToken',
        tags: ['tokens'],
        summary: 'Revoke a token, at once',
        params: z.object({ id: z.string().min(1, NOT_EMPTY) }),
        querystring: dryRunQuery,
        response: { 204: empty, ...errorAnswers(...errorsOf.write, 'invalid_url', 'not_found') },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const dryRun = request.query.dry_run === true;
      const known = dryRun ? tokens.list().some((record) => record.id === id) : await tokens.revoke(id);
      if (!known) throw new ApiError('not_found', `there is no token with the id ${id}`);
      return reply.code(204).send();
    },
  );
};

function shown({ id, subject, role, created_at, expires_at, revoked_at }: TokenRecord): z.infer<typeof TokenSchema> {
  return { id, subject, role, created_at, expires_at, revoked_at };
}
