import { readFileSync } from 'node:fs';
import type { Descriptors } from '#libc/descriptors.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { attribute, NETLINK_NETFILTER, NetlinkSocket } from '#libc/netlink.js';
import { lacking } from '#libc/proc/capabilities.js';
import { netlinkSockets, type Process, processOf, processOfSocket } from '#libc/proc/proc-sockets.js';

/** Number of the nfnetlink_log group. Weir's routing rule and routing table have the same number. */
const GROUP = 8353;
/** Numbers of the kernel: NFNL_SUBSYS_ULOG with NFULNL_MSG_CONFIG, NFULA_CFG_CMD and NFULNL_CFG_CMD_BIND. */
const CONFIGURE = (4 << 8) | 1;
const CFG_CMD = 1;
const BIND = 1;
const GROUPS = '/proc/thread-self/net/netfilter/nfnetlink_log';
const [EPERM, EINVAL] = [1, 22];

/**
 * The lock of a network namespace. A process has the lock while it has the group 8353 of netfilter's packet
 * log (nfnetlink_log), to which no rule logs. The kernel binds a group to one socket, requires CAP_NET_ADMIN
 * for it, and frees the group when that socket is closed. So the lock is released however the process ends. A
 * lock on the file of the namespace in /proc is no alternative, because any process of the namespace can open
 * the file and take the lock. A table of nftables with the flag `owner` is no alternative either, because
 * `nft -f` refuses a saved ruleset that contains this table.
 */
export class NamespaceLock {
  #socket: NetlinkSocket | undefined;

  constructor(private readonly descriptors: Descriptors) {}

  get isHeld(): boolean {
    return this.#socket !== undefined;
  }

  /** Returns false if another process has the lock. */
  acquire(): boolean {
    if (this.isHeld) return true;
    const socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
    const errno = socket.request(CONFIGURE, bindRequest());
    if (errno === 0) {
      this.#socket = socket;
      this.descriptors.hold(socket.fd);
      return true;
    }
    socket.close();
    if (errno === EPERM && !lacking(['CAP_NET_ADMIN']).includes('CAP_NET_ADMIN')) return false;
    throw new KernelFailure('lock the network namespace by nfnetlink_log', errno);
  }

  release(): void {
    if (this.#socket === undefined) return;
    this.descriptors.release(this.#socket.fd);
    this.#socket.close();
    this.#socket = undefined;
  }
}

/**
 * Returns whether the kernel supports nfnetlink_log; the request makes the kernel load the module. The
 * request contains no command, so it changes nothing. The kernel returns EINVAL if it does not support
 * nfnetlink_log, and otherwise another error.
 */
export function hasPacketLog(): boolean {
  const socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
  try {
    return socket.request(CONFIGURE, header()) !== EINVAL;
  } finally {
    socket.close();
  }
}

/** Returns a `struct nfgenmsg` with the number of the nfnetlink_log group in network byte order. */
function header(): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt16BE(GROUP, 2);
  return bytes;
}

const bindRequest = (): Buffer => Buffer.concat([header(), attribute(CFG_CMD, Uint8Array.of(BIND))]);

/**
 * Returns the process that has the lock of this thread's network namespace; undefined if no process has it,
 * or if the process cannot be found.
 */
export function namespaceLockHolder(): Process | undefined {
  const sockets = netlinkSockets(NETLINK_NETFILTER);
  const portId = boundPortId();
  const bound = portId === null ? undefined : sockets.find((socket) => socket.portId === portId);
  const holder = bound && processOfSocket(bound.inode);
  if (holder !== undefined) return holder;
  // Only root may read which socket has the group, and to which process a socket belongs. Without root, only
  // the port id of a socket points to a process: the first socket of a process has the process id as its port
  // id. The process id can belong to another PID namespace, so accept only a process with the command of this
  // process.
  const { command } = processOf(process.pid);
  const ids = (bound === undefined ? sockets : [bound]).map((socket) => socket.portId);
  return ids
    .filter((id) => id !== process.pid)
    .map(processOf)
    .find((each) => each.command === command);
}

/**
 * Returns the port id of the socket that has the group; undefined if no socket has it; null if this process
 * may not read it.
 */
function boundPortId(): number | undefined | null {
  try {
    const rows = readFileSync(GROUPS, 'utf8').split('\n');
    const found = rows.map((row) => row.trim().split(/\s+/)).find(([group]) => group === String(GROUP));
    return found && Number(found[1]);
  } catch {
    return null;
  }
}
