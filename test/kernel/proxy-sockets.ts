import { bindSocket, openListener, openSocket } from '#sockets/socket-options.js';
import { EXEMPT_BIT } from '#test/dataplane/marks.js';

/**
 * Opens a UDP socket and a TCP listener at each of two ports of this network namespace: with the mark of the
 * DNS proxy and of the service plane at `own`, without a mark at `other`. Returns the descriptors; the caller
 * closes them.
 */
export function openProxySockets(own: number, other: number): number[] {
  const ports = [
    [own, EXEMPT_BIT],
    [other, 0],
  ] as const;
  return ports.flatMap(([port, mark]) => {
    const fd = openSocket('udp', { mark });
    bindSocket(fd, { address: 0, port });
    return [fd, openListener({ address: 0, port }, { mark })];
  });
}
