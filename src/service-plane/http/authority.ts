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
