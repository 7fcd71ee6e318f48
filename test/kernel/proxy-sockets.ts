import { familyOf } from '#addresses/ip-address.js';
import { bindSocket, openListener, openSocket } from '#sockets/socket-options.js';
import { EXEMPT_BIT } from '#test/dataplane/marks.js';

/**
 * Opens a UDP socket and a TCP listener of each family at each of two ports of this network namespace: with
 * the mark of the DNS proxy and of the service plane at `own`, without a mark at `other`. Returns the
 * descriptors; the caller closes them.
 */
export function openProxySockets(own: number, other: number): number[] {
  const ports = [
    [own, EXEMPT_BIT],
    [other, 0],
  ] as const;
  return ports.flatMap(([port, mark]) =>
    [0, 0n].flatMap((address) => {
      const fd = openSocket('udp', { mark }, familyOf(address));
      bindSocket(fd, { address, port });
      return [fd, openListener({ address, port }, { mark })];
    }),
  );
}
