import type { TLSSocket } from 'node:tls';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '#api/errors/errors.js';
import type { PeerOperations } from '#cluster/operations.js';
import type { TokenIdentity } from '#store/tokens/authority.js';

/**
 * Returns the node that sent a request to the peer listener. Throws `peer_unknown` if the client presents no
 * certificate of a node of the cluster. `needsCa`: whether a CA must have signed the certificate as well.
 */
export async function authenticatePeer(
  { socket }: FastifyRequest,
  peers: PeerOperations,
  needsCa: boolean,
): Promise<TokenIdentity> {
  const client = socket as TLSSocket;
  // Without a client certificate, the result is an empty object.
  const { raw } = client.getPeerCertificate() as { readonly raw?: Buffer };
  const id = raw === undefined || (needsCa && !client.authorized) ? null : await peers.nodeWith(raw);
  if (id === null) throw new ApiError('peer_unknown');
  return { id, subject: `node:${id}`, role: 'admin' };
}
