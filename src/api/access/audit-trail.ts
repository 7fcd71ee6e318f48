import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Api } from '#api/api.js';
import { ERRORS, type ErrorCode } from '#api/errors/error-table.js';
import { ApiError } from '#api/errors/errors.js';
import type { Management } from '#api/management.js';

const SAFE_METHODS = ['GET', 'HEAD', 'OPTIONS'];
const LONGEST = 1_000;
const FAILED_LOGINS: readonly ErrorCode[] = ['invalid_token', 'invalid_sign_in_code', 'too_many_failed_logins'];
/** Operations that change nothing although their HTTP method is not GET, HEAD or OPTIONS. */
const CHANGE_NOTHING: readonly (string | undefined)[] = ['createClusterSysdump', 'createLocalSysdump', 'explainPolicy'];

/**
 * Records refused requests (see `isRefusal`) and successful writes as findings. Such a finding contains no
 * request body, no token, and no header other than the ETag. The node stores findings, returns them through
 * the API and sends them to sinks.
 */
export function keepAuditTrail(api: Api, management: Management): void {
  api.addHook('onError', async (request, _reply, error) => {
    if (!(error instanceof ApiError) || !isRefusal(error)) return;
    management.record({
      type: 'auth_denied',
      reason: error.code,
      actor: request.caller?.subject ?? null,
      operation: operationOf(request),
      target: request.is404 ? null : (request.routeOptions.url ?? null),
      remote: remoteOf(request),
    });
  });
  // Use `onSend`, not `onResponse`: if the client disconnects early, `onResponse` does not run, although the
  // write has changed the state.
  api.addHook('onSend', async (request, reply) => {
    if (!isChange(request, reply)) return;
    management.record({
      type: 'config_change',
      actor: request.caller?.subject ?? null,
      operation: operationOf(request),
      target: request.url.slice(0, LONGEST),
      remote: remoteOf(request),
      status: reply.statusCode,
      etag: etagOf(reply),
    });
  });
}

/**
 * Returns whether the error becomes an `auth_denied` finding: an invalid token, session or code, too
 * many failed logins, or a refusal with status 403. A missing token does not count: browsers and health
 * probes send requests without a token.
 */
function isRefusal({ code }: ApiError): boolean {
  return FAILED_LOGINS.includes(code) || ERRORS[code].status === 403;
}

function isChange(request: FastifyRequest, { statusCode }: FastifyReply): boolean {
  if (SAFE_METHODS.includes(request.method) || statusCode < 200 || statusCode > 299) return false;
  // A sign-out without a session changes nothing, so it is not recorded.
  if (request.access === 'sign_in' && request.caller === null) return false;
  const { dry_run: dryRun = false } = (request.query ?? {}) as { readonly dry_run?: unknown };
  return dryRun === false && !CHANGE_NOTHING.includes(operationOf(request) ?? undefined);
}

function operationOf({ routeOptions }: FastifyRequest): string | null {
  const { operationId } = (routeOptions.schema ?? {}) as { readonly operationId?: string };
  return operationId ?? null;
}

function remoteOf({ ip }: FastifyRequest): string {
  return ip.replace(/^::ffff:/, '');
}

function etagOf(reply: FastifyReply): string | null {
  const etag = reply.getHeader('etag');
  return typeof etag === 'string' ? etag : null;
}
