import { isIPv4 } from 'node:net';
import type { Logger } from 'pino';
import type { Api } from '#api/api.js';
import type { ListenAddress } from '#config/value.js';
import { processOfSocket, tcpListeners } from '#libc/proc-sockets.js';
import { listenOnceThere } from '#sockets/address-changes.js';
import { descriptorIn, type ListeningSocket, type ListeningSockets } from '#sockets/listening-sockets.js';
import { duplicateSocket } from '#sockets/socket-options.js';

export type Listening = {
  /** The name of the server in the log. */
  readonly name: string;
  readonly server: Api;
  readonly at: ListenAddress;
  /** The sockets that survive the process; null if the socket of this server does not. */
  readonly sockets: ListeningSockets | null;
};

/**
 * Makes a server listen. Waits while the node does not have the address, or while another process uses it:
 * any local user can take a port of 1024 or above, and must not stop the node by that.
 */
export function listen({ name, server, at, sockets }: Listening, log: Logger, signal: AbortSignal): Promise<void> {
  const { host, port } = at;
  const kept = sockets === null ? null : keptSocket(at);
  if (kept === null) sockets?.closeUnused('api');
  return listenOnceThere(
    () => {
      if (sockets === null || kept === null) return server.listen({ host, port });
      const { descriptors } = sockets.open('api', [kept]);
      // Node closes the descriptor together with the server, and listens on it whatever the host is. Without
      // a host, Fastify resolves `localhost`, and listens on the descriptor once more for each further
      // address.
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

/** Null for an address that `ListeningSockets` does not open, or with a port that the kernel chooses. */
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
