import type { Descriptors } from '#libc/descriptors.js';
import { NETLINK_ROUTE, NetlinkSocket } from '#libc/netlink.js';

const [LINK, ADDRESS, ROUTE, RULE] = [1 << 0, 1 << 4, 1 << 6, 1 << 7];
const [IPV6_ADDRESS, IPV6_ROUTE, IPV6_RULE] = [1 << 8, 1 << 10, 1 << 18];
/**
 * The rtnetlink multicast groups for each subject, one bit per group. `addresses`: changes of the node's
 * links and addresses. `sources`: changes that affect the kernel's choice of a source address.
 */
const GROUPS = {
  addresses: LINK | ADDRESS | IPV6_ADDRESS,
  sources: LINK | ADDRESS | ROUTE | RULE | IPV6_ADDRESS | IPV6_ROUTE | IPV6_RULE,
} as const;

/**
 * Kernel notifications of changed links, addresses, routes and rules in the network namespace of the
 * calling thread. The notifications stay in the buffer of the netlink socket until `drain` reads them, so one
 * call of `drain` reports many changes together. `drain` also returns true after an overflow of the buffer.
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

  /** Returns true if the kernel has sent a notification since the last call. Does not wait. */
  drain(): boolean {
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
