import { attributesIn, NETLINK_ROUTE, NetlinkSocket, viewOf } from '#libc/netlink.js';
import { AF_INET } from '#libc/socket-numbers.js';

const RTM_NEWADDR = 20;
const RTM_GETADDR = 22;
// Offset of the interface index in `struct ifaddrmsg`, and size of that struct, in bytes.
const IFADDRMSG = { index: 4, bytes: 8 } as const;
const IFA_LOCAL = 2;

/** Returns the IPv4 addresses in this network namespace as 32-bit numbers, by interface index. */
export function interfaceAddresses(): ReadonlyMap<number, readonly number[]> {
  const request = new Uint8Array(IFADDRMSG.bytes);
  request[0] = AF_INET;
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    const found = new Map<number, number[]>();
    for (const message of socket.dump(RTM_GETADDR, RTM_NEWADDR, request)) {
      const ifindex = message.getUint32(IFADDRMSG.index, true);
      const local = attributesIn(message, IFADDRMSG.bytes).get(IFA_LOCAL);
      const address = local === undefined ? [] : [viewOf(local).getUint32(0)];
      found.set(ifindex, [...(found.get(ifindex) ?? []), ...address]);
    }
    return found;
  } finally {
    socket.close();
  }
}
