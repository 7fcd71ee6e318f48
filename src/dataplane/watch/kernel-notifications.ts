import { changedTable } from '#dataplane/guard/nftables.js';
import { GUARD_TABLE } from '#dataplane/guard/nftables-guard.js';
import { NETLINK_NETFILTER, NETLINK_ROUTE, type NetlinkMessage, NetlinkSocket } from '#libc/netlink.js';

/**
 * The kinds of kernel state that may have changed. The datapath thread must read the kinds that are true
 * again.
 */
export type KernelNotifications = {
  readonly links: boolean;
  readonly guard: boolean;
  /** True if third-party hooks for forwarded packets may have changed. */
  readonly thirdPartyHooks: boolean;
};

const GROUP = { link: 1 << 0, filters: 1 << 3, rules: 1 << 7, nftables: 1 << 6 } as const;
const RTM_NEWLINK = 16;
const RTM_DELLINK = 17;

/**
 * Netlink sockets that receive notifications about changes of interfaces, tc filters, routing rules and
 * nftables, in the calling thread's network namespace.
 */
export class NotificationSockets {
  readonly #links = new NetlinkSocket(NETLINK_ROUTE, GROUP.link | GROUP.filters | GROUP.rules);
  readonly #tables: NetlinkSocket;

  constructor() {
    try {
      this.#tables = new NetlinkSocket(NETLINK_NETFILTER, GROUP.nftables);
    } catch (failure) {
      // Close the first socket. Otherwise its file descriptor would stay open until the process ends.
      this.#links.close();
      throw failure;
    }
  }

  /** File descriptors that become readable when `take` can return notifications. */
  get fds(): readonly number[] {
    return [this.#links.fd, this.#tables.fd];
  }

  /**
   * Returns the kinds of state about which notifications have arrived; does not wait. If the kernel lost
   * notifications of a socket, reports all kinds that depend on that socket as changed.
   */
  take(): KernelNotifications {
    const links = this.#links.receive();
    const tables = this.#tables.receive();
    return {
      links: links === 'lost' || links.some(isAboutLink),
      guard: tables === 'lost' || tables.some((message) => changedTable(message) === GUARD_TABLE),
      thirdPartyHooks: links === 'lost' || tables === 'lost' || links.length > 0 || tables.length > 0,
    };
  }

  close(): void {
    this.#links.close();
    this.#tables.close();
  }
}

/**
 * Returns whether a notification is about an interface. Checks the address family too, because a bridge
 * reports its ports with the same message types in the family AF_BRIDGE.
 */
function isAboutLink({ type, payload }: NetlinkMessage): boolean {
  return (type === RTM_NEWLINK || type === RTM_DELLINK) && payload.getUint8(0) === 0;
}
