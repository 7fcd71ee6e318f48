import { isIP } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '#api/errors/errors.js';
import { parametersIn } from './query-string.js';

const LOOPBACK = ['localhost', '127.0.0.1', '::1'];
const SINGLE = new Set(['host', 'authorization', 'content-type', 'if-match', 'if-none-match', 'origin', 'cookie']);
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);
const TOKEN_PARAMETERS = new Set([
  'token',
  'access_token',
  'id_token',
  'auth_token',
  'authorization',
  'bearer',
  'jwt',
  'api_key',
]);
const TOKEN_SHAPE = /^(Bearer[ +])?eyJ[\w-]+\.[\w-]+\.[\w-]+$/;

/**
 * Accepts only a path as the target of a request (RFC 9112, 3.2.1). A target with scheme or host is meant for
 * a proxy, and servers interpret such a target differently.
 */
export function checkTarget({ raw }: FastifyRequest): void {
  if (!/^\/(?!\/)/.test(raw.url ?? ''))
    throw new ApiError('invalid_url', 'the target of a request is a path that begins with one slash');
}

/**
 * Refuses too many headers. Refuses repeated headers that may occur only once, because HTTP parsers differ in
 * which value they use.
 */
export function checkHeaders({ raw }: FastifyRequest, headerCount: number): void {
  const names = raw.rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  if (names.length > headerCount) throw new ApiError('headers_too_large');
  const seen = new Set<string>();
  for (const name of names) {
    if (SINGLE.has(name) && seen.has(name))
      throw new ApiError('malformed_request', `the header ${name} was sent twice`);
    seen.add(name);
  }
}

/**
 * Refuses a `Host` header that does not name this node, to prevent DNS rebinding. The owner of a malicious
 * web page can make the hostname of the page resolve to this node, but the browser still sends this hostname
 * in `Host`. Loopback names and the IP address on which the connection arrived are always accepted. With
 * `any`, refuses only a request of HTTP/1.1 without `Host` (RFC 9112, 3.2).
 */
export function checkHost(request: FastifyRequest, hosts: ReadonlySet<string> | 'any'): void {
  const { headers, raw } = request;
  if (headers.host === undefined && raw.httpVersion === '1.1')
    throw new ApiError('malformed_request', 'the request has no Host header');
  if (hosts === 'any') return;
  const host = hostnameOf(headers.host ?? '');
  if (host === null) throw new ApiError('host_refused', 'the Host header does not contain a host name or an address');
  if (hosts.has(host) || LOOPBACK.includes(host)) return;
  if (isIP(host) !== 0 && host === request.socket.localAddress?.replace(/^::ffff:/, '')) return;
  const remedy = 'use the address that the node listens on, or add the name to api.allowed_hosts';
  throw new ApiError('host_refused', `${host} is not a name of this node: ${remedy}`);
}

/**
 * Refuses writes that a browser sends for a page of another origin. Clients other than browsers usually send
 * neither `Origin` nor `Sec-Fetch-Site`, so their writes pass.
 */
export function checkOrigin({ method, headers }: FastifyRequest): void {
  // Check WebSocket upgrades although their method is GET: a page of any origin can open a WebSocket with the
  // credentials that the browser stores.
  if (SAFE_METHODS.has(method) && headers.upgrade === undefined) return;
  checkSameOrigin({ headers });
}

/** Refuses a request that a browser sends for a page of another origin. */
export function checkSameOrigin({ headers }: Pick<FastifyRequest, 'headers'>): void {
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin' && site !== 'none') throw new ApiError('origin_refused');
  const { origin, host } = headers;
  if (origin === undefined) return;
  if (!URL.canParse(origin) || new URL(origin).host !== host?.toLowerCase()) throw new ApiError('origin_refused');
}

/** Refuses tokens in the query of a URL, because URLs are stored in logs and browser histories (D36). */
export function checkQuery(request: FastifyRequest): void {
  for (const [name, value] of parametersIn(request.raw.url ?? '')) {
    if (TOKEN_PARAMETERS.has(name.toLowerCase()) || TOKEN_SHAPE.test(String(value)))
      throw new ApiError('token_in_query');
  }
}

export function hostSet(hosts: readonly string[]): ReadonlySet<string> {
  return new Set(hosts.map((host) => host.toLowerCase().replace(/^\[|\]$/g, '')));
}

function hostnameOf(host: string): string | null {
  if (!/^[\w.:[\]-]+$/.test(host) || !URL.canParse(`http://${host}/`)) return null;
  return new URL(`http://${host}/`).hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '');
}
