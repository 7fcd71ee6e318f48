import type { Authority } from './authority.js';
import type { HttpFault } from './fault.js';

/** What a connection is for: the name of its hello, in lower case without its last dot, and the port that was dialled. */
export type Connection = { readonly sni: string; readonly port: number };

/** A request is for the server that the connection is for; another host would be answered by whoever is there (RFC 9110, 7.4). */
export function hostFault({ host, port }: Authority, connection: Connection): HttpFault | null {
  const isIt = host === connection.sni && (port === null || port === connection.port);
  return isIt ? null : 'host_is_not_sni';
}
