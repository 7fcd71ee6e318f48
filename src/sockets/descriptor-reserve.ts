import type { Socket } from 'node:net';
import { check, libc } from '#libc/libc.js';

const RLIMIT_NOFILE = 7;
/** Descriptors that connections leave free: for maps, netlink sockets, files of the store, `nft`, and threads that start again. */
const RESERVE = 256;
/** Descriptors besides that connections through the node leave to those of the API. */
const API_RESERVE = 64;

/** `connection`: of traffic, of DNS by TCP and to a server. `pipe`: of a connection that stands. */
type Use = 'api' | 'connection' | 'pipe';

/**
 * Whether a descriptor that was opened for another host belongs to the reserve of the process; it must be closed then. The kernel
 * gives the lowest free number, so the number says how many are open at least. Read anew each time: prlimit(1) may change the limit.
 */
export function isReserved(fd: number, use: Use): boolean {
  const limits = new BigUint64Array(2);
  check('read the limit of open files', libc.getrlimit(RLIMIT_NOFILE, limits));
  return fd >= boundOf(Number(limits[0]), use);
}

/** The first descriptor that is reserved. A low limit is not reserved as a whole. */
function boundOf(limit: number, use: Use): number {
  const own = Math.min(RESERVE, Math.floor(limit / 4));
  const api = use === 'connection' ? Math.min(API_RESERVE, Math.floor(limit / 16)) : 0;
  return limit - own - api;
}

/** The descriptor of a socket of Node; -1 where it has none. Not in the types. */
export function descriptorOf(socket: Socket): number {
  return (socket as Socket & { readonly _handle: { readonly fd: number } | null })._handle?.fd ?? -1;
}
