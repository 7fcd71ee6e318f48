import type { Authority } from './authority.js';
import type { HttpFault } from './fault.js';

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
