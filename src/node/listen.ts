import { isIPv4 } from 'node:net';
import type { Logger } from 'pino';
import type { Api } from '#api/api.js';
import type { ListenAddress } from '#config/value.js';
import { processOfSocket, tcpListeners } from '#libc/proc/proc-sockets.js';
import { descriptorIn, type ListeningSocket, type ListeningSockets } from '#sockets/listening/listening-sockets.js';
import { listenOnceThere } from '#sockets/routes/address-changes.js';
import { duplicateSocket } from '#sockets/socket-options.js';

export type Listening = {
  /** The name of the server in the log. */
  readonly name: string;
  readonly server: Api;
  readonly at: ListenAddress;
  /**
   * The listening sockets that stay open when the process ends; null if the socket of this server is closed
   * then.
   */
  readonly sockets: ListeningSockets | null;
};

/**
 * Makes a server listen. Waits while the node does not have the address, or while another process uses it. An
 * error would end the node, and any local user can occupy a port of 1024 or above.
 */
export function listen({ name, server, at, sockets }: Listening, log: Logger, signal: AbortSignal): Promise<void> {
  const { host, port } = at;
  const kept = sockets === null ? null : keptSocket(at);
  if (kept === null) sockets?.closeUnused('api');
  return listenOnceThere(
    () => {
      if (sockets === null || kept === null) return server.listen({ host, port });
      const { descriptors } = sockets.open('api', [kept]);
      // Pass a duplicate, because Node.js closes the descriptor together with the server. Node.js ignores
      // `host` if a descriptor is given, but Fastify needs it: without a host, Fastify would resolve
      // `localhost` and listen on the descriptor once for each address.
      const fd = duplicateSocket(descriptorIn(descriptors, 'api', kept));
      return server.listen({ fd, host } as object);
    },
    ({ code, message }) => {
      if (code === 'EADDRNOTAVAIL')
        log.warn({ host }, `${name} cannot listen until the node has this address: ${message}`);
      else {
        const users = usersOf(port);
        const advice = users.some(({ pid }) => pid === null)
          ? `; \`ss -ltnp 'sport = :${port}'\` as root shows the process`
          : '';
        log.error(
          { host, port, used_by: users },
          `${name} does not listen, because another process uses its address; the node enforces, and tries again each second${advice}`,
        );
      }
    },
    signal,
  );
}

/**
 * Returns null for an IPv6 address or a host name, which `ListeningSockets` does not open, and for port 0.
 */
function keptSocket({ host, port }: ListenAddress): ListeningSocket | null {
  if (!isIPv4(host) || port === 0) return null;
  const address = Buffer.from(host.split('.').map(Number)).readUInt32BE();
  return { kind: 'tcp', mark: 0, address, port };
}

function usersOf(
  port: number,
): { readonly uid: number; readonly pid: number | null; readonly command: string | null }[] {
  return tcpListeners(port).map(({ uid, inode }) => {
    const process = processOfSocket(inode);
    return { uid, pid: process?.pid ?? null, command: process?.command ?? null };
  });
}
