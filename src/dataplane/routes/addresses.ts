import { isLinkLocal } from '#addresses/ip-address.js';
import { attributesIn, NETLINK_ROUTE, NetlinkSocket, viewOf } from '#libc/netlink.js';
import { AF_INET, AF_INET6 } from '#libc/socket-numbers.js';

const RTM_NEWADDR = 20;
const RTM_GETADDR = 22;
// Offset of the interface index in `struct ifaddrmsg`, and size of that struct, in bytes.
const IFADDRMSG = { index: 4, bytes: 8 } as const;
const IFA_ADDRESS = 1;
const IFA_LOCAL = 2;

/** Returns the IPv4 addresses in this network namespace, by interface index. */
export const interfaceAddresses = (): ReadonlyMap<number, readonly number[]> =>
  dumped(AF_INET, IFA_LOCAL, (address) => address.getUint32(0));

/**
 * Returns the IPv6 addresses in this network namespace, by interface index; those of link scope come first.
 */
export function interfaceIpv6Addresses(): ReadonlyMap<number, readonly bigint[]> {
  const found = dumped(AF_INET6, IFA_ADDRESS, (view) => (view.getBigUint64(0) << 64n) | view.getBigUint64(8));
  return new Map([...found].map(([ifindex, addresses]) => [ifindex, addresses.toSorted(byScope)]));
}

const byScope = (a: bigint, b: bigint): number => Number(isLinkLocal(b)) - Number(isLinkLocal(a));

/**
 * Returns the addresses of a family by interface index. `attribute`: the netlink attribute with an address.
 * Ignores the addresses of other families: the kernel dumps those of all families if it does not have the
 * family, as Linux with `ipv6.disable=1` does not have IPv6.
 */
export function dumped<A>(family: number, attribute: number, read: (address: DataView) => A): Map<number, A[]> {
  const request = new Uint8Array(IFADDRMSG.bytes);
  request[0] = family;
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    const found = new Map<number, A[]>();
    for (const message of socket.dump(RTM_GETADDR, RTM_NEWADDR, request)) {
      if (message.getUint8(0) !== family) continue;
      const ifindex = message.getUint32(IFADDRMSG.index, true);
      const address = attributesIn(message, IFADDRMSG.bytes).get(attribute);
      found.set(ifindex, [...(found.get(ifindex) ?? []), ...(address === undefined ? [] : [read(viewOf(address))])]);
    }
    return found;
  } finally {
    socket.close();
  }
}
