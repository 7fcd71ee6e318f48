import { NETLINK_NETFILTER, NetlinkSocket } from '#libc/netlink.js';

const SUBSYSTEM_CONNTRACK = 1;
const IPCTNL_MSG_CT_DELETE = 2;
const NLM_F_REQUEST = 1;
/** The size of `struct nfgenmsg` in bytes. */
const HEADER_BYTES = 4;

/** Deletes all conntrack entries of the network namespace of this thread. */
export function flushConntrack(): void {
  const socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
  socket.send((SUBSYSTEM_CONNTRACK << 8) | IPCTNL_MSG_CT_DELETE, NLM_F_REQUEST, Buffer.alloc(HEADER_BYTES));
  socket.close();
}
