import { NETLINK_ROUTE, NetlinkSocket } from '#libc/netlink.js';
import type { Descriptors } from './descriptors.js';

const [LINK, ADDRESS, ROUTE, RULE] = [1 << 0, 1 << 4, 1 << 6, 1 << 7];
/**
 * One bit for each group of rtnetlink. `addresses`: the addresses of the node. `sources`: everything that
 * affects the choice of a source address.
 */
const GROUPS = { addresses: LINK | ADDRESS, sources: LINK | ADDRESS | ROUTE | RULE } as const;

/**
 * Kernel notifications of changed links, IPv4 addresses, routes and rules in the network namespace of the
 * calling thread. They wait in the socket's buffer until `take`, so many route changes cost one check. An
 * overflow of the buffer counts as a change.
 */
export class RouteNotifications {
  #isClosed = false;
  readonly #socket: NetlinkSocket;

  constructor(
    private readonly descriptors: Descriptors,
    about: keyof typeof GROUPS = 'sources',
  ) {
    this.#socket = new NetlinkSocket(NETLINK_ROUTE, GROUPS[about]);
    descriptors.hold(this.#socket.fd);
  }

  /** Whether anything changed since the last call. Does not wait. */
  take(): boolean {
    const messages = this.#socket.receive();
    return messages === 'lost' || messages.length > 0;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.descriptors.release(this.#socket.fd);
    this.#socket.close();
  }
}
