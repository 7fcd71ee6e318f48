import { getSystemErrorName } from 'node:util';
import koffi from 'koffi';

/** The calls on sockets that Node does not have, with their prototypes: a wrong one is a crash. */
type Libc = {
  socket(domain: number, type: number, protocol: number): number;
  setsockopt(fd: number, level: number, name: number, value: Uint8Array | Uint32Array, length: number): number;
  bind(fd: number, address: Uint8Array, length: number): number;
  connect(fd: number, address: Uint8Array, length: number): number;
  listen(fd: number, backlog: number): number;
  close(fd: number): number;
  recvmmsg(fd: number, headers: bigint, count: number, flags: number, timeout: null): number;
  sendmmsg(fd: number, headers: bigint, count: number, flags: number): number;
  socketpair(domain: number, type: number, protocol: number, pair: Int32Array): number;
  epoll_create1(flags: number): number;
  epoll_ctl(epoll: number, operation: number, fd: number, event: Uint8Array | null): number;
  epoll_wait(epoll: number, events: Uint8Array, count: number, timeoutMs: number): number;
  mmap(address: null, length: number, protection: number, flags: number, fd: number, offset: number): bigint;
  munmap(address: bigint, length: number): number;
};

const library = koffi.load('libc.so.6');

export const libc = {
  socket: library.func('int socket(int domain, int type, int protocol)'),
  setsockopt: library.func('int setsockopt(int fd, int level, int name, const void *value, uint32_t length)'),
  bind: library.func('int bind(int fd, const void *address, uint32_t length)'),
  connect: library.func('int connect(int fd, const void *address, uint32_t length)'),
  listen: library.func('int listen(int fd, int backlog)'),
  close: library.func('int close(int fd)'),
  recvmmsg: library.func('int recvmmsg(int fd, uint64_t headers, uint32_t count, int flags, void *timeout)'),
  sendmmsg: library.func('int sendmmsg(int fd, uint64_t headers, uint32_t count, int flags)'),
  socketpair: library.func('int socketpair(int domain, int type, int protocol, void *pair)'),
  epoll_create1: library.func('int epoll_create1(int flags)'),
  epoll_ctl: library.func('int epoll_ctl(int epoll, int operation, int fd, void *event)'),
  epoll_wait: library.func('int epoll_wait(int epoll, void *events, int count, int timeout)'),
  mmap: library.func(
    'uint64_t mmap(void *address, uint64_t length, int protection, int flags, int fd, int64_t offset)',
  ),
  munmap: library.func('int munmap(uint64_t address, uint64_t length)'),
} as unknown as Libc;

/** Of the call that failed last. */
export function errorName(): string {
  return getSystemErrorName(-koffi.errno());
}

/** Memory outside of V8's heap as bytes; it must be mapped for as long as anybody has them. */
export function memoryAt(address: bigint, length: number): ArrayBuffer {
  return koffi.view(address, length);
}

/** What a socket said no to. */
export class SocketFailure extends Error {
  override readonly name = 'SocketFailure';
  constructor(
    readonly doing: string,
    readonly code: string,
  ) {
    super(`${doing}: ${code}`);
  }
}

export function check(result: number, doing: string): number {
  if (result < 0) throw new SocketFailure(doing, errorName());
  return result;
}
