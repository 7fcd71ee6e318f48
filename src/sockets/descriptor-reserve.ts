import type { Socket } from 'node:net';
import { check, libc } from '#libc/libc.js';

const RLIMIT_NOFILE = 7;
/**
 * Descriptors that connections must leave free: for maps, netlink sockets, files of the store, `nft`, and
 * restarted threads.
 */
const RESERVE = 256;
/** Further descriptors that connections through the node leave to connections of the API. */
const API_RESERVE = 64;

/** `connection`: of traffic, of DNS over TCP, or to a server. `pipe`: of an established connection. */
type Use = 'api' | 'connection' | 'pipe';

/**
 * Whether a descriptor opened for another host belongs to the reserve of the process; the caller must then
 * close it. The kernel assigns the lowest free number, so at least that many descriptors are open. The limit
 * is read on each call: prlimit(1) may change it.
 */
export function isReserved(fd: number, use: Use): boolean {
  const limits = new BigUint64Array(2);
  check('read the limit of open files', libc.getrlimit(RLIMIT_NOFILE, limits));
  return fd >= boundOf(Number(limits[0]), use);
}

/** The first reserved descriptor. A low limit is only partly reserved. */
function boundOf(limit: number, use: Use): number {
  const own = Math.min(RESERVE, Math.floor(limit / 4));
  const api = use === 'connection' ? Math.min(API_RESERVE, Math.floor(limit / 16)) : 0;
  return limit - own - api;
}

/** The descriptor of a Node socket; -1 if it has none. Node's type definitions lack `_handle`. */
export function descriptorOf(socket: Socket): number {
  return (socket as Socket & { readonly _handle: { readonly fd: number } | null })._handle?.fd ?? -1;
}
