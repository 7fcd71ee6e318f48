import type { HttpFault } from './fault.js';

/**
 * The host and the port of a URI authority. `host` is in lower case, without a dot at the end; an IPv6
 * address is in brackets.
 */
export type Authority = { readonly host: string; readonly port: number | null };

const AUTHORITY = /^([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\.?(?::([0-9]{1,5}))?$/;
const IPV6_AUTHORITY = /^(\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?$/;

/**
 * Reads a host and an optional port from a Host field (RFC 9110, 7.2), a `:authority` pseudo-header or a
 * target in absolute form.
 */
export function readAuthority(text: string): Authority | HttpFault {
  const match = AUTHORITY.exec(text) ?? IPV6_AUTHORITY.exec(text);
  if (match === null) return text.includes('@') ? 'userinfo' : 'invalid_host';
  const [, host = '', digits] = match;
  const port = digits === undefined ? null : Number(digits);
  if (host.length > 253 || port === 0 || (port ?? 1) > 65_535) return 'invalid_host';
  return { host: host.toLowerCase(), port };
}

/**
 * The server that a TLS connection is intended for. `sni`: the server name of the ClientHello, in lower case
 * without a dot at the end. `port`: the destination port.
 */
export type Connection = { readonly sni: string; readonly port: number };

/**
 * Returns a fault if the host of a request is not the server of the connection. Without this check, a
 * different server could process the request (RFC 9110, 7.4).
 */
export function hostFault({ host, port }: Authority, connection: Connection): HttpFault | null {
  const isIt = host === connection.sni && (port === null || port === connection.port);
  return isIt ? null : 'host_is_not_sni';
}
