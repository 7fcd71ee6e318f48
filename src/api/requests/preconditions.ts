import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '#api/errors/errors.js';

export type Preconditions = { readonly ifMatch: string | undefined; readonly ifNoneMatch: string | undefined };

const ENTITY_TAGS = /^(\*|(W\/)?"[^"]*"([ \t]*,[ \t]*(W\/)?"[^"]*")*)$/;

/** Throws `invalid_header` for preconditions that the API does not support (D8). */
export function preconditionsOf({ headers }: FastifyRequest): Preconditions {
  const ifMatch = headers['if-match']?.trim();
  const ifNoneMatch = headers['if-none-match']?.trim();
  if (ifMatch !== undefined && !ENTITY_TAGS.test(ifMatch)) {
    throw new ApiError('invalid_header', 'If-Match must hold quoted entity tags, or *');
  }
  if (ifNoneMatch !== undefined && ifNoneMatch !== '*') {
    throw new ApiError('invalid_header', 'If-None-Match on a write must be *');
  }
  return { ifMatch, ifNoneMatch };
}

/**
 * Reads a setting or an integration (a Kubernetes API server) before a write, and checks the preconditions of
 * the request. Returns the stored object, and the revision that the write must replace, if the request has
 * preconditions. The store compares this revision again, so that another write between the check and this
 * write is detected.
 */
export async function readForWrite<Stored extends { readonly revision: number } | null>(
  request: FastifyRequest,
  read: () => Promise<Stored>,
  etagOf: (stored: NonNullable<Stored>) => string,
): Promise<{ readonly before: Stored; readonly expected: { readonly expectedRevision?: number } }> {
  const preconditions = preconditionsOf(request);
  const before = await read();
  checkPreconditions(preconditions, before === null ? null : etagOf(before));
  const { ifMatch, ifNoneMatch } = preconditions;
  const isConditional = ifMatch !== undefined || ifNoneMatch !== undefined;
  return { before, expected: isConditional ? { expectedRevision: before?.revision ?? 0 } : {} };
}

/**
 * Checks the preconditions of a write to a setting or an integration (a Kubernetes API server). `etag` is the
 * stored ETag; null if nothing is stored. `src/policies/write/write-decision.ts` checks the preconditions of
 * policies.
 */
function checkPreconditions({ ifMatch, ifNoneMatch }: Preconditions, etag: string | null): void {
  if (ifMatch !== undefined && !matches(ifMatch, etag, 'strong')) {
    const found = etag === null ? 'If-Match needs a stored object, and there is none' : `the stored ETag is ${etag}`;
    throw new ApiError('precondition_failed', withRemedy(found));
  }
  if (ifNoneMatch !== undefined && etag !== null) {
    throw new ApiError('precondition_failed', withRemedy(`the resource exists already; its ETag is ${etag}`));
  }
}

/** Returns the error message of a failed precondition: the sentence `found`, and what the client can do. */
export const withRemedy = (found: string): string => `${found}; read it again, and write with the new ETag in If-Match`;

/**
 * Sets the ETag header of a read response. Returns true if the client already has this revision; the caller
 * must then respond with 304.
 */
export function isUnchanged(request: FastifyRequest, reply: FastifyReply, etag: string): boolean {
  reply.header('etag', etag);
  const known = request.headers['if-none-match']?.trim();
  return known !== undefined && matches(known, etag, 'weak');
}

function matches(field: string, etag: string | null, comparison: 'strong' | 'weak'): boolean {
  if (etag === null) return false;
  if (field === '*') return true;
  const tags = field.match(/(W\/)?"[^"]*"/g) ?? [];
  return tags.some((tag) => (comparison === 'weak' ? tag.replace(/^W\//, '') : tag) === etag);
}
