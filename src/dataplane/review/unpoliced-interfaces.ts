import { readFileSync } from 'node:fs';
import type { Interface } from '#dataplane/attach/interfaces.js';
import type { Link } from '#dataplane/attach/netlink-interfaces.js';
import { hasRoute } from '#dataplane/routes/routes.js';
import { NETLINK_ROUTE, NetlinkSocket } from '#libc/netlink.js';

const AF_INET = 2;
const RTM_NEWADDR = 20;
const RTM_GETADDR = 22;
// Offset of the interface index in `struct ifaddrmsg`, and size of that struct, in bytes.
const IFADDRMSG = { index: 4, bytes: 8 } as const;
/**
 * Maximum number of interface names in one warning; the warning gives only the count of further interfaces.
 */
const MOST_NAMES = 5;

/**
 * Returns a list with at most one warning. The warning names the interfaces that Weir does not police
 * although the node forwards their IPv4 packets (D17b).
 */
export function unnamedWarnings(policed: readonly Interface[], links: readonly Link[]): string[] {
  const candidates = links.filter(
    ({ name, ifindex, master, isUp, isLoopback }) =>
      isUp && !isLoopback && master === 0 && !policed.some((found) => found.ifindex === ifindex) && forwards(name),
  );
  if (candidates.length === 0) return [];
  const addressed = addressedInterfaces();
  const names = candidates
    .filter(({ ifindex }) => addressed.has(ifindex) || hasRoute(ifindex))
    .map(({ name }) => name)
    .toSorted();
  if (names.length === 0) return [];
  const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '';
  const listed = `${names.slice(0, MOST_NAMES).join(', ')}${more}`;
  return [`the node forwards packets from ${listed} without a policy: dataplane.interfaces does not contain it`];
}

function forwards(name: string): boolean {
  try {
    return readFileSync(`/proc/sys/net/ipv4/conf/${name}/forwarding`, 'utf8').trim() === '1';
  } catch {
    // The file is missing if the interface was removed after `listLinks` read it.
    return false;
  }
}

/** Returns the indexes of the interfaces that have an IPv4 address. */
function addressedInterfaces(): ReadonlySet<number> {
  const request = new Uint8Array(IFADDRMSG.bytes);
  request[0] = AF_INET;
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    const messages = socket.dump(RTM_GETADDR, RTM_NEWADDR, request);
    return new Set(messages.map((message) => message.getUint32(IFADDRMSG.index, true)));
  } finally {
    socket.close();
  }
}
