import { attributesIn, NETLINK_NETFILTER, NetlinkSocket } from '#libc/netlink.js';

const SUBSYSTEM_CONNTRACK = 1;
const IPCTNL_MSG_CT_NEW = 0;
const IPCTNL_MSG_CT_GET = 1;
const IPCTNL_MSG_CT_DELETE = 2;
const CTA_TIMEOUT = 7;
const NLM_F_REQUEST = 1;
/** The size of `struct nfgenmsg` in bytes. */
const HEADER_BYTES = 4;

/** Deletes all conntrack entries of the network namespace of this thread. */
export function flushConntrack(): void {
  const socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
  socket.send((SUBSYSTEM_CONNTRACK << 8) | IPCTNL_MSG_CT_DELETE, NLM_F_REQUEST, Buffer.alloc(HEADER_BYTES));
  socket.close();
}

/** Returns for how many seconds conntrack keeps each connection of the network namespace of this thread. */
export function conntrackSeconds(): number[] {
  const socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
  const messageType = (type: number): number => (SUBSYSTEM_CONNTRACK << 8) | type;
  try {
    return socket
      .dump(messageType(IPCTNL_MSG_CT_GET), messageType(IPCTNL_MSG_CT_NEW), Buffer.alloc(HEADER_BYTES))
      .flatMap((message) => {
        const seconds = attributesIn(message, HEADER_BYTES).get(CTA_TIMEOUT);
        return seconds === undefined ? [] : Buffer.from(seconds).readUInt32BE();
      });
  } finally {
    socket.close();
  }
}
