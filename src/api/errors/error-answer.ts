import type { FastifyReply, FastifyRequest } from 'fastify';
import { isLastAnswer } from '#api/connections/closing-connections.js';
import { withRemedy } from '#api/requests/preconditions.js';
import type { Refusal } from '#contracts/refusal.js';
import type { ErrorCode } from './error-table.js';
import { ApiError, PROBLEM_TYPE, problemDocument } from './errors.js';

/**
 * Maps error codes of Fastify and of the store to error codes of the API. Any other error is a bug and
 * becomes a 500 response.
 */
const KNOWN_CODES: Readonly<Record<string, ErrorCode>> = {
  FST_ERR_BAD_URL: 'invalid_url',
  FST_ERR_INVALID_URL: 'invalid_url',
  FST_ERR_MAX_PARAM_LENGTH: 'url_too_long',
  FST_ERR_CTP_BODY_TOO_LARGE: 'body_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_CTP_EMPTY_TYPE: 'unsupported_media_type',
  FST_ERR_ROUTE_MISSING_CONTENT_TYPE: 'unsupported_media_type',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'malformed_request',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'invalid_body',
  FST_ERR_CTP_INVALID_JSON_BODY: 'invalid_body',
  FST_ERR_NOT_FOUND: 'no_such_path',
  ECONNRESET: 'malformed_request',
  store_locked: 'store_unavailable',
  store_damaged: 'store_unavailable',
  store_no_space: 'store_unavailable',
  store_read_only: 'store_unavailable',
  store_closed: 'store_unavailable',
  store_unavailable: 'store_unavailable',
  store_full: 'store_full',
  outcome_unknown: 'outcome_unknown',
  seal_key_missing: 'store_unavailable',
  seal_key_exposed: 'store_unavailable',
  seal_key_invalid: 'store_unavailable',
  seal_broken: 'store_unavailable',
  revision_conflict: 'precondition_failed',
};

function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { code } = (error ?? {}) as { readonly code?: unknown };
  const known = typeof code === 'string' && Object.hasOwn(KNOWN_CODES, code) ? KNOWN_CODES[code] : undefined;
  return new ApiError(known ?? 'internal');
}

export function refused({ code, detail, problems, assertions }: Refusal): ApiError {
  const said = code === 'precondition_failed' ? withRemedy(detail) : detail.replace(/^: /, 'the body: ');
  return new ApiError(code, said, problems ?? [], {}, assertions);
}

export function answerError(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const answer = toApiError(error);
  if (error !== answer && answer.statusCode >= 500) request.log.error({ err: error }, 'request failed');
  if (answer.statusCode === 503) reply.header('retry-after', '1');
  const connection = [
    ...(answer.code === 'request_timeout' || isLastAnswer(reply.raw) ? ['close'] : []),
    ...(answer.headers.upgrade === undefined ? [] : ['upgrade']),
  ];
  if (connection.length > 0) reply.header('connection', connection.join(', '));
  else reply.removeHeader('connection');
  return reply
    .code(answer.statusCode)
    .headers({ ...answer.headers })
    .type(PROBLEM_TYPE)
    .send(JSON.stringify(problemDocument(answer)));
}
