import type { Address, Family } from '#contracts/policy/policy-model.js';
import { attributesIn, NETLINK_ROUTE, NetlinkSocket, viewOf } from '#libc/netlink.js';
import { AF_INET, AF_INET6 } from '#libc/socket-numbers.js';
import type { Route } from './route-lines.js';

const FAMILY: Readonly<Record<Family, number>> = { ipv4: AF_INET, ipv6: AF_INET6 };
const RTM_NEWROUTE = 24;
const RTM_GETROUTE = 26;
// Offsets of the fields of `struct rtmsg` and its size, in bytes.
const HEADER = { destinationBits: 1, tos: 3, type: 7, flags: 8, bytes: 12 } as const;
const RTN_UNICAST = 1;
const RTN_THROW = 9;
const TABLE = { main: 254, local: 255 } as const;
const RTA = {
  destination: 1,
  interface: 4,
  multipath: 9,
  table: 15,
  via: 18,
  encapsulationType: 21,
  encapsulation: 22,
  nexthop: 30,
} as const;
/**
 * Netlink attributes of routes that are not plain: several next hops, a next hop of another address family, a
 * next hop object, or an encapsulation.
 */
const NOT_PLAIN = [RTA.multipath, RTA.via, RTA.encapsulationType, RTA.encapsulation, RTA.nexthop];
const MAX_ROUTES = 20_000;
const FLAG = { dead: 1, linkDown: 16, cloned: 0x200 } as const;

/**
 * Returns the routes of a family, by default of IPv4, in the routing tables `main` and `local` of this
 * thread's network namespace. Ignores routing rules. Returns null if a route depends on more than the
 * destination address, or if there are more than `MAX_ROUTES` routes. Throws `KernelFailure` if the kernel
 * does not return all routes.
 */
export function readRoutes(): Route[] | null;
export function readRoutes(family: Family): Route<Address>[] | null;
export function readRoutes(family: Family = 'ipv4'): Route<Address>[] | null {
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    // Without strict checking, the dump would include cached exceptions for single addresses. Such an
    // exception would hide a route whose prefix begins with the same address.
    socket.checkStrictly();
    const request = new Uint8Array(HEADER.bytes);
    request[0] = family === 'ipv4' ? AF_INET : AF_INET6;
    const routes: Route<Address>[] = [];
    const messages = socket.dump(RTM_GETROUTE, RTM_NEWROUTE, request);
    if (messages.length > MAX_ROUTES) return null;
    for (const message of messages) {
      const flags = message.getUint32(HEADER.flags, true);
      const attributes = attributesIn(message, HEADER.bytes);
      const table = numberIn(attributes, RTA.table);
      if (table !== TABLE.main && table !== TABLE.local) continue;
      if (message.getUint8(HEADER.tos) !== 0 || (flags & FLAG.cloned) !== 0) return null;
      const isPlain =
        message.getUint8(HEADER.type) === RTN_UNICAST &&
        (flags & (FLAG.dead | FLAG.linkDown)) === 0 &&
        !NOT_PLAIN.some((type) => attributes.has(type));
      routes.push({
        address: addressIn(attributes.get(RTA.destination), family),
        length: message.getUint8(HEADER.destinationBits),
        local: table === TABLE.local,
        ifindex: isPlain ? numberIn(attributes, RTA.interface) : 0,
      });
    }
    return routes;
  } finally {
    socket.close();
  }
}

/**
 * Returns the type, prefix length and TOS of each route of a routing table, in this thread's network
 * namespace.
 */
export function routesOfTable(
  table: number,
  family: Family,
): { readonly type: number; readonly length: number; readonly tos: number }[] {
  // If the routing table does not exist or has no routes, the last message of the dump contains an error.
  // `dump` ignores that error, so the result is empty.
  const read = (socket: NetlinkSocket, request: Uint8Array) =>
    socket.dump(RTM_GETROUTE, RTM_NEWROUTE, request).map((message) => ({
      type: message.getUint8(HEADER.type),
      length: message.getUint8(HEADER.destinationBits),
      tos: message.getUint8(HEADER.tos),
    }));
  return filtered(RTA.table, table, read, family);
}

/**
 * Returns whether a routing table has a route for the addresses that its other routes do not cover: a default
 * route of any type but `throw`, or one of the two halves of a default route that VPN clients add.
 */
export function hasDefaultRoute(table: number): boolean {
  return firstRoutes(table).some(
    (message) => message.getUint8(HEADER.destinationBits) <= 1 && message.getUint8(HEADER.type) !== RTN_THROW,
  );
}

export function defaultInterfaces(table: number): number[] {
  return firstRoutes(table)
    .filter(
      (message) => message.getUint8(HEADER.destinationBits) === 0 && message.getUint8(HEADER.type) === RTN_UNICAST,
    )
    .flatMap((message) => {
      const attributes = attributesIn(message, HEADER.bytes);
      const nexthops = attributes.get(RTA.multipath);
      return nexthops === undefined ? [numberIn(attributes, RTA.interface)] : interfacesIn(viewOf(nexthops));
    });
}

/**
 * Returns the first routes of a routing table. They contain all default routes, because the kernel dumps
 * routes in ascending order of their address.
 */
function firstRoutes(table: number): DataView[] {
  return filtered(RTA.table, table, (socket, request) => socket.beginDump(RTM_GETROUTE, RTM_NEWROUTE, request));
}

/**
 * Returns whether any routing table has a route of a family through the interface. The routes that each
 * interface with IPv6 has do not count: those to link-local and to multicast addresses. A kernel without the
 * family dumps the routes of the other families, which do not count either.
 */
export function hasRoute(ifindex: number, family: Family = 'ipv4'): boolean {
  return filtered(
    RTA.interface,
    ifindex,
    (socket, request) => socket.beginDump(RTM_GETROUTE, RTM_NEWROUTE, request),
    family,
  ).some((message) => message.getUint8(0) === FAMILY[family] && !isOfEachLink(message));
}

function isOfEachLink(route: DataView): boolean {
  if (route.getUint8(0) !== AF_INET6) return false;
  const destination = attributesIn(route, HEADER.bytes).get(RTA.destination);
  const [first = 0, second = 0] = destination ?? [];
  return first === 0xff || (first === 0xfe && (second & 0xc0) === 0x80);
}

/** Returns the interface indexes in an array of `struct rtnexthop`. */
function interfacesIn(nexthops: DataView): number[] {
  const found: number[] = [];
  for (let at = 0; at + 8 <= nexthops.byteLength; ) {
    const length = nexthops.getUint16(at, true);
    if (length < 8) break;
    found.push(nexthops.getInt32(at + 4, true));
    at += (length + 3) & ~3;
  }
  return found;
}

/**
 * Calls `use` with a netlink socket and the payload of a request. With this payload, the kernel dumps only
 * the routes of a family whose attribute has the given value.
 */
function filtered<T>(
  attribute: number,
  value: number,
  use: (socket: NetlinkSocket, request: Uint8Array) => T,
  family: Family = 'ipv4',
): T {
  const request = new DataView(new ArrayBuffer(HEADER.bytes + 8));
  request.setUint8(0, FAMILY[family]);
  request.setUint16(HEADER.bytes, 8, true);
  request.setUint16(HEADER.bytes + 2, attribute, true);
  request.setUint32(HEADER.bytes + 4, value, true);
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    // Without strict checking, the kernel ignores the attribute and dumps all routes.
    socket.checkStrictly();
    return use(socket, new Uint8Array(request.buffer));
  } finally {
    socket.close();
  }
}

/** Reads a 32-bit number in host byte order from a netlink attribute; 0 if the attribute is missing. */
function numberIn(attributes: ReadonlyMap<number, Uint8Array>, type: number): number {
  const bytes = attributes.get(type);
  return bytes === undefined ? 0 : new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
}

/** Reads an address from a netlink attribute; the unspecified address if the attribute is missing. */
function addressIn(bytes: Uint8Array | undefined, family: Family): Address {
  const view = bytes && new DataView(bytes.buffer, bytes.byteOffset);
  if (family === 'ipv4') return view?.getUint32(0) ?? 0;
  return view === undefined ? 0n : (view.getBigUint64(0) << 64n) | view.getBigUint64(8);
}
