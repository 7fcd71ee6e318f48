import type { Server, Socket } from 'node:net';
import { constants, release } from 'node:os';
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
const IP_RECVORIGDSTADDR = 20;
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
/** Size of struct sockaddr_in6, and the offset of its address. */
export const SOCKADDR_IN6_BYTES = 28;
const SOCKADDR_IN6_ADDRESS = 8;

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

/** Returns the descriptor of a new non-blocking socket. The caller owns the descriptor. */
export function openSocket(kind: SocketKind, options: SocketOptions, family: Family = 'ipv4'): number {
  const domain = family === 'ipv4' ? AF_INET : AF_INET6;
  const fd = check('open a socket', libc.socket(domain, TYPES[kind] | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  try {
    setOptions(fd, kind, options);
    return fd;
  } catch (failure) {
    libc.close(fd);
    throw failure;
  }
}

/** Sets the options of a socket, also of a socket that another process has opened. */
export function setOptions(fd: number, kind: SocketKind, options: SocketOptions): void {
  const { mark, bufferBytes, isTransparent = false } = options;
  if (kind === 'tcp') setForBytes(fd);
  if (mark !== 0) set(fd, SO_MARK, mark, 'mark a socket');
  if (bufferBytes !== undefined) {
    setBuffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, bufferBytes);
    setBuffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, bufferBytes);
  }
  if (isTransparent) {
    set(fd, IP_TRANSPARENT, 1, 'make a socket transparent', SOL_IP);
    if (kind === 'udp') set(fd, IP_RECVORIGDSTADDR, 1, 'request the destination of datagrams', SOL_IP);
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

export function bindSocket(fd: number, { address, port }: { readonly address: number; readonly port: number }): void {
  if (libc.bind(fd, sockaddr(address, port), SOCKADDR_BYTES) >= 0) return;
  const number = errno();
  const lacked = number === EACCES ? lacking(['CAP_NET_BIND_SERVICE']).map((name) => ` (${name} missing)`) : [];
  throw new KernelFailure(`listen on ${dotted(address)}:${port}${lacked.join('')}`, number);
}

export function dotted(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 0xff).join('.');
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
export function openListener(
  at: { readonly address: number; readonly port: number },
  options: SocketOptions & { readonly isShared?: boolean },
): number {
  return preparedSocket('tcp', options, (fd) => {
    set(fd, SO_REUSEADDR, 1, 'reuse an address');
    if (options.isShared === true) set(fd, SO_REUSEPORT, 1, 'share an address');
    bindSocket(fd, at);
    check('listen', libc.listen(fd, BACKLOG));
  });
}

/** Returns the descriptor of a UDP socket that is bound to `at`. */
export function openReceiver(at: { readonly address: number; readonly port: number }, options: SocketOptions): number {
  return preparedSocket('udp', options, (fd) => bindSocket(fd, at));
}

/** Returns the descriptor of a UDP socket that is connected to `to`. */
export function openSender(to: { readonly address: Address; readonly port: number }, options: SocketOptions): number {
  const name = sockaddr(to.address, to.port);
  const connect = (fd: number): void => {
    check('connect', libc.connect(fd, name, name.length));
  };
  return preparedSocket('udp', options, connect, typeof to.address === 'number' ? 'ipv4' : 'ipv6');
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

/** Returns whether a descriptor is an IPv4 socket of this kind with this local address. */
export function isBoundTo(
  fd: number,
  kind: SocketKind,
  at: { readonly address: number; readonly port: number },
): boolean {
  const type = new Uint8Array(4);
  if (libc.getsockopt(fd, SOL_SOCKET, SO_TYPE, type, Uint32Array.of(type.length)) < 0) return false;
  if (new DataView(type.buffer).getUint32(0, true) !== TYPES[kind]) return false;
  const own = new Uint8Array(SOCKADDR_BYTES);
  if (libc.getsockname(fd, own, Uint32Array.of(SOCKADDR_BYTES)) < 0) return false;
  return Buffer.compare(own, sockaddr(at.address, at.port)) === 0;
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
 * Returns the descriptor of a TCP socket that is bound to `from.address`, which may belong to another host.
 * The source port is `from.port`, or a free port if the kernel refuses `from.port`. The caller gives the
 * descriptor to Node, which connects the socket.
 */
export function openConnector(from: { readonly address: number; readonly port: number }, mark: number): number {
  return preparedSocket('tcp', { mark, isTransparent: true }, (fd) => {
    if (isReserved(fd, 'connection')) throw new KernelFailure('open a socket', EMFILE);
    set(fd, SO_REUSEADDR, 1, 'reuse an address');
    if (libc.bind(fd, sockaddr(from.address, from.port), SOCKADDR_BYTES) < 0) {
      if (errno() !== EADDRINUSE && errno() !== EACCES) check('bind to the address of a client', -1);
      check('bind to the address of a client', libc.bind(fd, sockaddr(from.address, 0), SOCKADDR_BYTES));
    }
  });
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
  const view = new DataView(bytes.buffer);
  view.setUint16(0, typeof address === 'number' ? AF_INET : AF_INET6, true);
  view.setUint16(2, port);
  if (typeof address === 'number') view.setUint32(4, address);
  else {
    view.setBigUint64(SOCKADDR_IN6_ADDRESS, address >> 64n);
    view.setBigUint64(SOCKADDR_IN6_ADDRESS + 8, BigInt.asUintN(64, address));
  }
  return bytes;
}

/** Returns the address in a sockaddr_in or sockaddr_in6, in host byte order. */
export function addressInSockaddr(bytes: Uint8Array): Address {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  if (view.getUint16(0, true) === AF_INET) return view.getUint32(4);
  return (view.getBigUint64(SOCKADDR_IN6_ADDRESS) << 64n) | view.getBigUint64(SOCKADDR_IN6_ADDRESS + 8);
}
