import { NETLINK_ROUTE, NetlinkSocket } from '#libc/netlink.js';
import type { Descriptors } from './descriptors.js';

/** A bit for each group of rtnetlink that tells of a change by which the kernel may choose another source address. */
const GROUPS = { link: 1 << 0, address: 1 << 4, route: 1 << 6, rule: 1 << 7 } as const;

/**
 * Kernel notifications of changed links, IPv4 addresses, routes and rules in the network namespace of the calling thread.
 * They wait in the socket's buffer until `take`: a storm of changed routes costs one look, and what had no room counts as news.
 */
export class RouteNews {
  #isClosed = false;
  readonly #socket = new NetlinkSocket(NETLINK_ROUTE, GROUPS.link | GROUPS.address | GROUPS.route | GROUPS.rule);

  constructor(private readonly descriptors: Descriptors) {
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
