import type { Server, Socket } from 'node:net';
import { constants, release } from 'node:os';
import { familyOf, formatAddress } from '#addresses/ip-address.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { check, duplicate, errno, libc } from '#libc/libc.js';
import { lacking } from '#libc/proc/capabilities.js';
import {
  AF_INET,
  AF_INET6,
  SO_MARK,
  SOCK_CLOEXEC,
  SOCK_DGRAM,
  SOCK_NONBLOCK,
  SOCK_STREAM,
  SOL_SOCKET,
} from '#libc/socket-numbers.js';
import { descriptorOf, isReserved } from '#sockets/listening/descriptor-reserve.js';

const TYPES = { udp: SOCK_DGRAM, tcp: SOCK_STREAM } as const;
const SO_RCVBUF = 8;
const SO_SNDBUF = 7;
const SO_RCVBUFFORCE = 33;
const SO_SNDBUFFORCE = 32;
const SO_REUSEADDR = 2;
const SO_TYPE = 3;
const SO_KEEPALIVE = 9;
const SO_OOBINLINE = 10;
const SO_LINGER = 13;
const SO_REUSEPORT = 15;
const { EACCES, EADDRINUSE, EMFILE } = constants.errno;
const SOL_IP = 0;
const IP_TRANSPARENT = 19;
const SOL_IPV6 = 41;
const IPV6_V6ONLY = 26;
/** The option by which a socket receives the destination of each datagram (IP_RECVORIGDSTADDR). */
const DESTINATION_OPTION = { ipv4: [20, SOL_IP], ipv6: [74, SOL_IPV6] } as const;
const SOL_TCP = 6;
const TCP_NODELAY = 1;
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_KEEPCNT = 6;
/**
 * A peer that does not answer is dead after two minutes: after 60 s without data, the kernel sends six probes
 * in 60 s.
 */
const KEEPALIVE = [
  [TCP_KEEPIDLE, 60],
  [TCP_KEEPINTVL, 10],
  [TCP_KEEPCNT, 6],
] as const;
const BACKLOG = 1_024;
const SOCKADDR_BYTES = 16;
/** Size of struct sockaddr_in6, and the offsets of its address and of its scope. */
export const SOCKADDR_IN6_BYTES = 28;
const SOCKADDR_IN6_ADDRESS = 8;
const SOCKADDR_IN6_SCOPE = 24;

export type SocketOptions = {
  /** The mark (SO_MARK) of all packets that the socket sends; 0 for no mark. */
  readonly mark: number;
  /** The size of the socket's receive buffer, and also of its send buffer, in bytes. */
  readonly bufferBytes?: number;
  /**
   * If true, the socket receives packets for addresses of other hosts, and sends from those addresses. A UDP
   * socket then also receives the destination address of each datagram.
   */
  readonly isTransparent?: boolean;
};

export type SocketKind = keyof typeof TYPES;

/** The address and port of a socket, in host byte order. */
export type SocketAddress = { readonly address: Address; readonly port: number };

/** Returns the descriptor of a new non-blocking socket. The caller owns the descriptor. */
export function openSocket(kind: SocketKind, options: SocketOptions, family: Family = 'ipv4'): number {
  const domain = family === 'ipv4' ? AF_INET : AF_INET6;
  const fd = check('open a socket', libc.socket(domain, TYPES[kind] | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  try {
    // A socket at `::` would otherwise receive IPv4 packets too, with IPv4-mapped source addresses.
    if (family === 'ipv6') set(fd, IPV6_V6ONLY, 1, 'receive IPv6 alone', SOL_IPV6);
    setOptions(fd, kind, options, family);
    return fd;
  } catch (failure) {
    libc.close(fd);
    throw failure;
  }
}

/** Sets the options of a socket, also of a socket that another process has opened. */
export function setOptions(fd: number, kind: SocketKind, options: SocketOptions, family: Family): void {
  const { mark, bufferBytes, isTransparent = false } = options;
  if (kind === 'tcp') setForBytes(fd);
  if (mark !== 0) set(fd, SO_MARK, mark, 'mark a socket');
  if (bufferBytes !== undefined) {
    setBuffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, bufferBytes);
    setBuffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, bufferBytes);
  }
  if (isTransparent) {
    // This option makes sockets of both families transparent.
    set(fd, IP_TRANSPARENT, 1, 'make a socket transparent', SOL_IP);
    const [option, level] = DESTINATION_OPTION[family];
    if (kind === 'udp') set(fd, option, 1, 'request the destination of datagrams', level);
  }
}

/**
 * Without CAP_NET_ADMIN, the option `forced` cannot be set. The option `limited` can be set, but
 * net.core.rmem_max or wmem_max limits the buffer.
 */
function setBuffer(fd: number, forced: number, limited: number, bytes: number): void {
  if (libc.setsockopt(fd, SOL_SOCKET, forced, Uint32Array.of(bytes), 4) >= 0) return;
  set(fd, limited, bytes, 'set the buffer size of a socket');
}

function set(fd: number, name: number, value: number, doing: string, level = SOL_SOCKET): void {
  check(doing, libc.setsockopt(fd, level, name, Uint32Array.of(value), 4));
}

export function bindSocket(fd: number, { address, port }: SocketAddress): void {
  const name = sockaddr(address, port);
  if (libc.bind(fd, name, name.length) >= 0) return;
  const number = errno();
  const lacked = number === EACCES ? lacking(['CAP_NET_BIND_SERVICE']).map((name) => ` (${name} missing)`) : [];
  const host = typeof address === 'number' ? formatAddress(address) : `[${formatAddress(address)}]`;
  throw new KernelFailure(`listen on ${host}:${port}${lacked.join('')}`, number);
}

/**
 * Returns whether a BPF program can assign a packet to a socket with SO_REUSEPORT (Linux 6.6). On earlier
 * kernels, `bpf_sk_assign` fails with ESOCKTNOSUPPORT.
 */
export function canAssignToShared(): boolean {
  const [major = 0, minor = 0] = release().split('.').map(Number);
  return major > 6 || (major === 6 && minor >= 6);
}

/** Returns the descriptor of a new socket after `prepare`. If `prepare` throws, closes the socket. */
function preparedSocket(
  kind: SocketKind,
  options: SocketOptions,
  prepare: (fd: number) => void,
  family: Family = 'ipv4',
): number {
  const fd = openSocket(kind, options, family);
  try {
    prepare(fd);
    return fd;
  } catch (failure) {
    libc.close(fd);
    throw failure;
  }
}

/**
 * Returns the descriptor of a listening TCP socket. With `isShared`, other sockets may listen on the same
 * address and port.
 */
export function openListener(at: SocketAddress, options: SocketOptions & { readonly isShared?: boolean }): number {
  const listen = (fd: number): void => {
    set(fd, SO_REUSEADDR, 1, 'reuse an address');
    if (options.isShared === true) set(fd, SO_REUSEPORT, 1, 'share an address');
    bindSocket(fd, at);
    check('listen', libc.listen(fd, BACKLOG));
  };
  return preparedSocket('tcp', options, listen, familyOf(at.address));
}

/** Returns the descriptor of a UDP socket that is bound to `at`. */
export function openReceiver(at: SocketAddress, options: SocketOptions): number {
  return preparedSocket('udp', options, (fd) => bindSocket(fd, at), familyOf(at.address));
}

/** Returns the descriptor of a UDP socket that is connected to `to`. */
export function openSender(to: SocketAddress, options: SocketOptions): number {
  const name = sockaddr(to.address, to.port);
  const connect = (fd: number): void => {
    check('connect', libc.connect(fd, name, name.length));
  };
  return preparedSocket('udp', options, connect, familyOf(to.address));
}

/** Returns a descriptor of the same socket. The socket stays open until all its descriptors are closed. */
export function duplicateSocket(fd: number): number {
  return duplicate('use a listening socket', fd);
}

export function listenOnDuplicate(server: Server, fd: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ fd: duplicateSocket(fd) }, BACKLOG, () => {
      server.off('error', reject);
      server.on('error', () => {});
      resolve();
    });
  });
}

/** Returns whether a descriptor is a socket of this kind with this local address. */
export function isBoundTo(fd: number, kind: SocketKind, at: SocketAddress): boolean {
  const type = new Uint8Array(4);
  if (libc.getsockopt(fd, SOL_SOCKET, SO_TYPE, type, Uint32Array.of(type.length)) < 0) return false;
  if (new DataView(type.buffer).getUint32(0, true) !== TYPES[kind]) return false;
  const expected = sockaddr(at.address, at.port);
  const own = new Uint8Array(expected.length);
  if (libc.getsockname(fd, own, Uint32Array.of(own.length)) < 0) return false;
  return Buffer.compare(own, expected) === 0;
}

/**
 * Sets the options of a TCP socket that relays a byte stream. The socket sends without delay, detects a dead
 * peer by keepalive, and receives urgent data in order (RFC 6093). Accepted sockets inherit the options of
 * their listener.
 */
function setForBytes(fd: number): void {
  set(fd, SO_OOBINLINE, 1, 'receive urgent data inline');
  set(fd, TCP_NODELAY, 1, 'disable delayed sending', SOL_TCP);
  set(fd, SO_KEEPALIVE, 1, 'enable keepalive');
  for (const [name, value] of KEEPALIVE) set(fd, name, value, 'enable keepalive', SOL_TCP);
}

/**
 * Returns the descriptor of a TCP socket that is bound to `address`, which may belong to another host. The
 * source port is `port`, or a free port if the kernel refuses `port`. The caller gives the descriptor to
 * Node, which connects the socket.
 */
export function openConnector({ address, port }: SocketAddress, mark: number): number {
  const bindTo = (fd: number, name: Uint8Array): boolean => libc.bind(fd, name, name.length) >= 0;
  const bind = (fd: number): void => {
    if (isReserved(fd, 'connection')) throw new KernelFailure('open a socket', EMFILE);
    set(fd, SO_REUSEADDR, 1, 'reuse an address');
    if (bindTo(fd, sockaddr(address, port))) return;
    if (errno() !== EADDRINUSE && errno() !== EACCES) check('bind to the address of a client', -1);
    check('bind to the address of a client', bindTo(fd, sockaddr(address, 0)) ? 0 : -1);
  };
  return preparedSocket('tcp', { mark, isTransparent: true }, bind, familyOf(address));
}

/** Closes a TCP socket with a reset (RST), and drops the data that the socket has not sent. */
export function resetSocket(fd: number): void {
  resetAtClose(fd);
  libc.close(fd);
}

/**
 * Destroys a TCP or TLS socket of Node with a reset (RST) to the peer, and drops the data that the socket has
 * not sent. Node's own `resetAndDestroy` refuses TLS sockets, and loses the descriptor of a socket that still
 * sends the data before its FIN.
 */
export function destroyWithReset(socket: Socket): void {
  const fd = descriptorOf(socket);
  if (fd >= 0) resetAtClose(fd);
  socket.destroy();
}

function resetAtClose(fd: number): void {
  // For a descriptor that is not a socket, `setsockopt` fails without effect.
  libc.setsockopt(fd, SOL_SOCKET, SO_LINGER, LINGER_FOR_NOTHING, LINGER_FOR_NOTHING.byteLength);
}
const LINGER_FOR_NOTHING = Uint32Array.of(1, 0);

/** Returns the bytes of a sockaddr_in or sockaddr_in6. `address` and `port` are in host byte order. */
export function sockaddr(address: Address, port: number): Uint8Array {
  const bytes = new Uint8Array(typeof address === 'number' ? SOCKADDR_BYTES : SOCKADDR_IN6_BYTES);
  writeSockaddr(new DataView(bytes.buffer), 0, address, port);
  return bytes;
}

/**
 * Writes a sockaddr_in or sockaddr_in6 to `view`, from byte `at` on, and returns its size. `address` and
 * `port` are in host byte order.
 */
export function writeSockaddr(view: DataView, at: number, address: Address, port: number): number {
  view.setUint16(at, typeof address === 'number' ? AF_INET : AF_INET6, true);
  view.setUint16(at + 2, port);
  // The address of a sockaddr_in; the flow label of a sockaddr_in6.
  view.setUint32(at + 4, typeof address === 'number' ? address : 0);
  if (typeof address === 'number') return SOCKADDR_BYTES;
  view.setBigUint64(at + SOCKADDR_IN6_ADDRESS, address >> 64n);
  view.setBigUint64(at + SOCKADDR_IN6_ADDRESS + 8, BigInt.asUintN(64, address));
  view.setUint32(at + SOCKADDR_IN6_SCOPE, 0);
  return SOCKADDR_IN6_BYTES;
}

/** Returns the address in a sockaddr_in or sockaddr_in6 at byte `at` of `view`, in host byte order. */
export function addressInSockaddr(view: DataView, at = 0): Address {
  if (view.getUint16(at, true) === AF_INET) return view.getUint32(at + 4);
  const high = view.getBigUint64(at + SOCKADDR_IN6_ADDRESS);
  return (high << 64n) | view.getBigUint64(at + SOCKADDR_IN6_ADDRESS + 8);
}
