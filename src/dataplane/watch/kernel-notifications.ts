import { changedTable } from '#dataplane/guard/nftables.js';
import { GUARD_TABLE } from '#dataplane/guard/nftables-guard.js';
import { NETLINK_NETFILTER, NETLINK_ROUTE, type NetlinkMessage, NetlinkSocket } from '#libc/netlink.js';

/** What may have changed, and must be looked at. */
export type KernelNotifications = {
  readonly links: boolean;
  readonly guard: boolean;
  /** Who else has a say in forwarded packets. */
  readonly others: boolean;
};

const GROUP = { link: 1 << 0, filters: 1 << 3, rules: 1 << 7, nftables: 1 << 6 } as const;
const RTM_NEWLINK = 16;
const RTM_DELLINK = 17;

/** Hears from the kernel that interfaces, tc filters, ip rules or nftables changed, in the network namespace of the calling thread. */
export class NotificationSockets {
  readonly #links = new NetlinkSocket(NETLINK_ROUTE, GROUP.link | GROUP.filters | GROUP.rules);
  readonly #tables: NetlinkSocket;

  constructor() {
    try {
      this.#tables = new NetlinkSocket(NETLINK_NETFILTER, GROUP.nftables);
    } catch (failure) {
      // The process would keep it beyond the thread.
      this.#links.close();
      throw failure;
    }
  }

  /** Readable when there is something to `take`. */
  get fds(): readonly number[] {
    return [this.#links.fd, this.#tables.fd];
  }

  /** Does not wait. Where messages were lost, anything may have changed. */
  take(): KernelNotifications {
    const links = this.#links.receive();
    const tables = this.#tables.receive();
    return {
      links: links === 'lost' || links.some(isAboutLink),
      guard: tables === 'lost' || tables.some((message) => changedTable(message) === GUARD_TABLE),
      others: links === 'lost' || tables === 'lost' || links.length > 0 || tables.length > 0,
    };
  }

  close(): void {
    this.#links.close();
    this.#tables.close();
  }
}

/** Bridges tell about their ports by the same types, in a family of their own. */
function isAboutLink({ type, payload }: NetlinkMessage): boolean {
  return (type === RTM_NEWLINK || type === RTM_DELLINK) && payload.getUint8(0) === 0;
}
