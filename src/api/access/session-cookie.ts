import type { FastifyRequest } from 'fastify';
import { ApiError } from '#api/errors/errors.js';

/**
 * Returns the name of the cookie of a session. Browsers send the cookies of a host to all its ports, so the
 * name has the host and the port: nodes that are tunnelled to ports of localhost keep their own cookies.
 * With TLS, `__Host-` makes browsers refuse a cookie of this name from another host or from plain HTTP.
 */
function cookieName({ headers, protocol }: FastifyRequest): string {
  const host = (headers.host ?? '').toLowerCase().replace(/[^a-z\d.-]/g, '-');
  return `${protocol === 'https' ? '__Host-' : ''}weir-session-${host}`;
}

/**
 * Returns the value of the session's cookie; undefined if the request has none. Throws `malformed_request` if
 * the request has several cookies of this name.
 */
export function sessionCookieIn(request: FastifyRequest): string | undefined {
  const { cookie } = request.headers;
  if (cookie === undefined) return undefined;
  const prefix = `${cookieName(request)}=`;
  const pairs = cookie.split(';').map((pair) => pair.trim());
  const [value, ...others] = pairs.filter((pair) => pair.startsWith(prefix)).map((pair) => pair.slice(prefix.length));
  if (others.length > 0) throw new ApiError('malformed_request', 'the cookie of the session was sent twice');
  return value;
}

/**
 * Returns a `Set-Cookie` header that stores a session in the browser for `maxAgeS` seconds. `maxAgeS` 0
 * removes the cookie.
 */
export function setSessionCookie(request: FastifyRequest, value: string, maxAgeS: number): string {
  const secure = request.protocol === 'https' ? '; Secure' : '';
  return `${cookieName(request)}=${value}; Path=/; Max-Age=${maxAgeS}; HttpOnly; SameSite=Strict${secure}`;
}
