import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from './errors.js';

export type Preconditions = { readonly ifMatch: string | undefined; readonly ifNoneMatch: string | undefined };

const ENTITY_TAGS = /^(\*|(W\/)?"[^"]*"([ \t]*,[ \t]*(W\/)?"[^"]*")*)$/;

/** The preconditions of a write (D8). Throws for preconditions that the API cannot check. */
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
 * Preconditions of settings. Those of policies are in `src/policy-write/write-decision.ts`. `etag` is the
 * stored one; null if nothing is stored.
 */
export function checkPreconditions({ ifMatch, ifNoneMatch }: Preconditions, etag: string | null): void {
  if (ifMatch !== undefined && !matches(ifMatch, etag, 'strong')) {
    const found = etag === null ? 'there is none to match' : `the stored ETag is ${etag}`;
    throw new ApiError('precondition_failed', withRemedy(found));
  }
  if (ifNoneMatch !== undefined && etag !== null) {
    throw new ApiError('precondition_failed', withRemedy(`there is one already, its ETag is ${etag}`));
  }
}

/** Adds the remedy to the message of a failed precondition. */
export const withRemedy = (found: string): string => `${found}; read it again, and write with the new ETag in If-Match`;

/**
 * Sets the ETag of a read. Returns true if the caller already has this revision; the response is then 304.
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

/**
 * Returns the revision that the write must replace, so that no other write can come between check and write.
 */
export function expectedRevision(
  { ifMatch, ifNoneMatch }: Preconditions,
  revision: number,
): { readonly expectedRevision?: number } {
  return ifMatch === undefined && ifNoneMatch === undefined ? {} : { expectedRevision: revision };
}
