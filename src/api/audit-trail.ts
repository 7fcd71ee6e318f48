import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Api } from './api.js';
import { ApiError, ERRORS } from './errors.js';
import type { Management } from './management.js';

const SAFE_METHODS = ['GET', 'HEAD', 'OPTIONS'];
const LONGEST = 1_000;
/** Operations that change nothing although their HTTP method is not GET, HEAD or OPTIONS. */
const CHANGE_NOTHING: readonly (string | undefined)[] = ['createClusterSysdump', 'explainPolicy'];

/**
 * Records refused logins and successful writes as findings. A finding never contains a request body, a token,
 * or a header other than the ETag. Findings are stored, readable through the API and sent to sinks.
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
 * Returns whether the error is a refused login. A missing token does not count as a login: browsers and
 * probes send requests without a token.
 */
function isRefusal({ code }: ApiError): boolean {
  return code === 'invalid_token' || code === 'too_many_failed_logins' || ERRORS[code].status === 403;
}

function isChange(request: FastifyRequest, { statusCode }: FastifyReply): boolean {
  if (SAFE_METHODS.includes(request.method) || statusCode < 200 || statusCode > 299) return false;
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
