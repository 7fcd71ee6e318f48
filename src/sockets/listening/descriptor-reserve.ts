import type { Socket } from 'node:net';
import { check, libc } from '#libc/libc.js';

const RLIMIT_NOFILE = 7;
/**
 * The number of file descriptors that connections must leave free. The process needs these descriptors for
 * BPF maps, netlink sockets, files of the store, `nft`, and restarted threads.
 */
const RESERVE = 256;
/**
 * The number of file descriptors, in addition to `RESERVE`, that traffic connections must leave free for API
 * connections.
 */
const API_RESERVE = 64;

/**
 * The purpose of a file descriptor. `api`: a connection to the API. `connection`: a new connection of
 * traffic, of DNS over TCP, of a remote client to the metrics listener, or to a server. `pipe`: a pipe of an
 * established connection.
 */
type Use = 'api' | 'connection' | 'pipe';

/**
 * Returns true if `fd`, which is open for a connection of another host, is in the range that the process
 * reserves for its own files. The caller must then close `fd`. The kernel assigns the lowest free number, so
 * at least `fd` descriptors are open. `isReserved` reads the limit of open files at each call, because
 * prlimit(1) may change the limit.
 */
export function isReserved(fd: number, use: Use): boolean {
  const limits = new BigUint64Array(2);
  check('read the limit of open files', libc.getrlimit(RLIMIT_NOFILE, limits));
  return fd >= boundOf(Number(limits[0]), use);
}

/**
 * Returns the number of the first reserved descriptor. If the limit of open files is low, the reserve is a
 * fraction of the limit.
 */
function boundOf(limit: number, use: Use): number {
  const own = Math.min(RESERVE, Math.floor(limit / 4));
  const api = use === 'connection' ? Math.min(API_RESERVE, Math.floor(limit / 16)) : 0;
  return limit - own - api;
}

/**
 * Returns the descriptor of a Node socket; -1 if the socket has no descriptor. The cast is needed because
 * Node's type definitions lack `_handle`.
 */
export function descriptorOf(socket: Socket): number {
  return (socket as Socket & { readonly _handle: { readonly fd: number } | null })._handle?.fd ?? -1;
}
