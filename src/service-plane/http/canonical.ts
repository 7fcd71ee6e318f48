import type { Authority } from './authority.js';
import type { HttpFault } from './fault.js';

/**
 * The intended server of a connection: the name of its hello, in lower case without its last dot, and the
 * destination port.
 */
export type Connection = { readonly sni: string; readonly port: number };

/**
 * A request must name the server that the connection is for. Otherwise another server might answer it (RFC
 * 9110, 7.4).
 */
export function hostFault({ host, port }: Authority, connection: Connection): HttpFault | null {
  const isIt = host === connection.sni && (port === null || port === connection.port);
  return isIt ? null : 'host_is_not_sni';
}
