import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import { empty, errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { noQuery } from '#api/requests/query-parameters.js';
import { readOptionalBody } from '#api/requests/request-body.js';
import type { SessionVerdict } from '#store/tokens/sessions.js';
import type { TokenId } from '#store/tokens/token-verdict.js';
import { authenticate, sessionVerdict, unauthorized } from './authentication.js';
import { setSessionCookie } from './session-cookie.js';

const SessionSchema = z
  .object({
    subject: z.string().describe('The subject of the token; writes are recorded under this name.'),
    role: z.enum(['admin', 'readonly']),
    expires_at: instant,
    node: z.string().describe('The id of the node. Other nodes of a cluster do not accept the session.'),
  })
  .meta({ id: 'Session' });
const SessionCreateSchema = z
  .strictObject({ code: z.string().max(200).optional().describe('The code of a sign-in link.') })
  .meta({ id: 'SessionCreate' });
const SignInLinkSchema = z
  .object({
    code: z.string().describe('Begins one session: `POST /api/v1/session` with `{"code": …}`.'),
    expires_at: instant,
  })
  .meta({ id: 'SignInLink' });

const PATH = '/api/v1/session';
/** These routes are open without a token, because they authenticate the client themselves. */
const config = { access: { management: 'sign_in' } } as const;

export const sessionResource: Resource = (api, management) => {
  const { sessions } = management;
  /**
   * Returns the API token with which a client signs in: from the header Authorization, or that of a one-time
   * code.
   */
  const tokenOf = async (request: FastifyRequest, code: string | undefined): Promise<TokenId> => {
    const { authorization } = request.headers;
    if (code === undefined) {
      if (authorization === undefined) throw unauthorized('unauthenticated');
      return authenticate(request, management);
    }
    if (authorization !== undefined)
      throw new ApiError('invalid_request', 'give the code or the header Authorization, not both');
    return sessions.codes.redeem(code) ?? (await request.refuseLogin(unauthorized('invalid_sign_in_code')));
  };

  api.post(
    PATH,
    {
      config,
      validatorCompiler: readOptionalBody,
      schema: {
        operationId: 'createSession',
        tags: ['tokens'],
        summary: 'Sign in with a token, or with the code of a sign-in link',
        description:
          'Starts a session of a browser and returns its cookie: HttpOnly, SameSite=Strict, and with TLS Secure. The session ends after 12 hours, or with its token. ' +
          'The cookie takes the place of the header `Authorization` at this node. The request has either that header or a code.',
        security: [{ bearer: [] }, {}],
        querystring: noQuery,
        body: SessionCreateSchema,
        response: { 201: SessionSchema, ...errorAnswers(...errorsOf.signIn, 'invalid_sign_in_code') },
      },
    },
    async (request, reply) => {
      const token = await tokenOf(request, request.body.code);
      const started = await sessions.start(token);
      if (started === null) return request.refuseLogin(unauthorized('invalid_token'));
      request.caller = started.identity;
      const maxAgeS = Math.floor((started.session.expiresAt.getTime() - Date.now()) / 1000);
      reply.header('set-cookie', setSessionCookie(request, started.jwt, Math.max(maxAgeS, 0)));
      return reply.code(201).send(shown(started));
    },
  );

  api.get(
    PATH,
    {
      config,
      schema: {
        operationId: 'getSession',
        tags: ['tokens'],
        summary: 'The session of the cookie',
        description: 'Null if the client is signed out, or if its session has ended.',
        querystring: noQuery,
        response: { 200: SessionSchema.nullable(), ...errorAnswers(...errorsOf.session) },
      },
    },
    async (request, reply) => {
      const verdict = await sessionVerdict(request, management);
      if (verdict?.kind === 'refused') removeCookie(request, reply);
      return reply.send(verdict?.kind === 'accepted' ? shown(verdict) : null);
    },
  );

  api.delete(
    PATH,
    {
      config,
      schema: {
        operationId: 'deleteSession',
        tags: ['tokens'],
        summary: 'Sign out',
        description: 'Ends the session of the cookie, and removes the cookie. Returns 204 also without a session.',
        querystring: noQuery,
        response: { 204: empty, ...errorAnswers(...errorsOf.session, 'store_unavailable') },
      },
    },
    async (request, reply) => {
      const verdict = await sessionVerdict(request, management);
      removeCookie(request, reply);
      if (verdict?.kind === 'accepted') {
        request.caller = verdict.identity;
        await sessions.end(verdict.session);
      }
      return reply.code(204).send();
    },
  );

  api.post(
    `${PATH}/link`,
    {
      config: { access: { management: 'read' } },
      schema: {
        operationId: 'createSignInLink',
        tags: ['tokens'],
        summary: 'Create the code of a sign-in link',
        description:
          'The code begins one session of the token of the request, within 60 seconds, at this node. Ten codes of a token can be valid at the same time. ' +
          'The link is `/console/#code=CODE`: browsers do not send the part after `#`. A session cannot create a link.',
        querystring: noQuery,
        response: { 201: SignInLinkSchema, ...errorAnswers(...errorsOf.read, 'forbidden') },
      },
    },
    async (request, reply) => {
      const { caller, session } = request;
      if (caller === null) throw new ApiError('unauthenticated');
      // A session that could create sign-in links could start new sessions for ever, beyond its own lifetime.
      if (session !== null) throw new ApiError('forbidden', 'a session cannot create a sign-in link: use its token');
      const { code, expiresAt } = sessions.codes.issue(caller);
      return reply.code(201).send({ code, expires_at: expiresAt.toISOString() });
    },
  );
};

function removeCookie(request: FastifyRequest, reply: FastifyReply): void {
  reply.header('set-cookie', setSessionCookie(request, '', 0));
}

function shown({
  identity: { subject, role },
  session: { expiresAt, node },
}: Pick<Extract<SessionVerdict, { kind: 'accepted' }>, 'identity' | 'session'>): z.infer<typeof SessionSchema> {
  return { subject, role, expires_at: expiresAt.toISOString(), node };
}
