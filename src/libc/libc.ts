import { getSystemErrorName } from 'node:util';
import koffi from 'koffi';
import { KernelFailure } from './kernel-failure.js';
import { addressOf, bindLibrary, type Pointer } from './library.js';

type Libc = {
  mmap(address: null, length: number, protection: number, flags: number, fd: number, offset: number): Pointer;
  munmap(address: Pointer, length: number): number;
  close(fd: number): number;
  flock(fd: number, operation: number): number;
  mount(source: string, target: string, type: string, flags: number, data: null): number;
  statfs(path: string, into: Uint8Array): number;
  socket(domain: number, type: number, protocol: number): number;
  bind(fd: number, address: Uint8Array, length: number): number;
  setsockopt(fd: number, level: number, name: number, value: Uint8Array | Uint32Array, length: number): number;
  getsockopt(fd: number, level: number, name: number, value: Uint8Array, length: Uint32Array): number;
  getsockname(fd: number, address: Uint8Array, length: Uint32Array): number;
  getpeername(fd: number, address: Uint8Array, length: Uint32Array): number;
  sendto(
    fd: number,
    bytes: Uint8Array,
    length: number,
    flags: number,
    address: Uint8Array,
    addressLength: number,
  ): number;
  connect(fd: number, address: Uint8Array, length: number): number;
  listen(fd: number, backlog: number): number;
  socketpair(domain: number, type: number, protocol: number, pair: Int32Array): number;
  recvmmsg(fd: number, headers: Pointer, count: number, flags: number, timeout: null): number;
  sendmmsg(fd: number, headers: Pointer, count: number, flags: number): number;
  sendmsg(fd: number, message: Uint8Array, flags: number): number;
  epoll_create1(flags: number): number;
  epoll_ctl(epoll: number, operation: number, fd: number, event: Uint8Array | null): number;
  epoll_wait(epoll: number, events: Uint8Array, count: number, timeoutMs: number): number;
  send(fd: number, bytes: Uint8Array, length: number, flags: number): number;
  recv(fd: number, into: Uint8Array, length: number, flags: number): number;
  poll(descriptors: Uint8Array, count: number, timeoutMs: number): number;
  eventfd(count: number, flags: number): number;
  write(fd: number, bytes: Uint8Array, length: number): number;
  fcntl(fd: number, command: number, argument: number): number;
  pipe2(ends: Int32Array, flags: number): number;
  shutdown(fd: number, how: number): number;
  splice(from: number, fromOffset: number, to: number, toOffset: number, length: number, flags: number): number;
  getpagesize(): number;
  getrlimit(resource: number, limits: BigUint64Array): number;
  ioctl(fd: number, request: number, argument: Uint8Array): number;
  if_nameindex(): Pointer;
  if_freenameindex(list: Pointer): void;
  syscall: {
    (number: number, first: number, second: number, third: number): number;
    async(
      number: number,
      first: number,
      second: number,
      third: number,
      done: (error: Error | null, result: number) => void,
    ): void;
  };
};
const LIBC: Record<keyof Libc, string> = {
  mmap: 'void *mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset)',
  munmap: 'int munmap(void *address, size_t length)',
  close: 'int close(int fd)',
  flock: 'int flock(int fd, int operation)',
  mount: 'int mount(const char *source, const char *target, const char *type, ulong flags, const void *data)',
  statfs: 'int statfs(const char *path, _Out_ void *into)',
  socket: 'int socket(int domain, int type, int protocol)',
  bind: 'int bind(int fd, const void *address, uint32_t length)',
  setsockopt: 'int setsockopt(int fd, int level, int name, const void *value, uint32_t length)',
  getsockopt: 'int getsockopt(int fd, int level, int name, _Out_ void *value, _Inout_ uint32_t *length)',
  getsockname: 'int getsockname(int fd, _Out_ void *address, _Inout_ uint32_t *length)',
  getpeername: 'int getpeername(int fd, _Out_ void *address, _Inout_ uint32_t *length)',
  sendto:
    'long sendto(int fd, const void *bytes, size_t length, int flags, const void *address, uint32_t address_length)',
  connect: 'int connect(int fd, const void *address, uint32_t length)',
  listen: 'int listen(int fd, int backlog)',
  socketpair: 'int socketpair(int domain, int type, int protocol, _Out_ void *pair)',
  // Declare addresses as numbers: for a pointer, koffi would create a JavaScript value at each call.
  recvmmsg: 'int recvmmsg(int fd, uint64_t headers, uint32_t count, int flags, void *timeout)',
  sendmmsg: 'int sendmmsg(int fd, uint64_t headers, uint32_t count, int flags)',
  sendmsg: 'long sendmsg(int fd, const void *message, int flags)',
  epoll_create1: 'int epoll_create1(int flags)',
  epoll_ctl: 'int epoll_ctl(int epoll, int operation, int fd, void *event)',
  epoll_wait: 'int epoll_wait(int epoll, void *events, int count, int timeout)',
  send: 'long send(int fd, const void *bytes, size_t length, int flags)',
  recv: 'long recv(int fd, _Out_ void *into, size_t length, int flags)',
  poll: 'int poll(_Inout_ void *descriptors, ulong count, int timeout)',
  eventfd: 'int eventfd(uint32_t count, int flags)',
  write: 'long write(int fd, const void *bytes, size_t length)',
  fcntl: 'int fcntl(int fd, int command, long argument)',
  pipe2: 'int pipe2(_Out_ void *ends, int flags)',
  shutdown: 'int shutdown(int fd, int how)',
  // splice(2) requires null pointers as offsets here. Declare the offsets as numbers and always pass 0,
  // because koffi creates no JavaScript value for a number.
  splice: 'long splice(int from, uint64_t from_offset, int to, uint64_t to_offset, size_t length, uint32_t flags)',
  getpagesize: 'int getpagesize()',
  getrlimit: 'int getrlimit(int resource, _Out_ void *limits)',
  ioctl: 'int ioctl(int fd, ulong request, _Inout_ void *argument)',
  if_nameindex: 'void *if_nameindex()',
  if_freenameindex: 'void if_freenameindex(void *list)',
  syscall: 'long syscall(long number, long first, long second, long third)',
};
export const libc = bindLibrary<Libc>(null, LIBC);

/** Returns the errno of the last failed libc call in this thread. */
export function errno(): number {
  return koffi.errno();
}

export function errorName(): string {
  return getSystemErrorName(-errno());
}

/**
 * Returns `result` if it is not negative; otherwise throws a `KernelFailure`. `doing` describes the operation
 * for the message.
 */
export function check(doing: string, result: number, detail?: () => string): number {
  if (result >= 0) return result;
  // libbpf functions return -errno. libc functions return -1 and set errno.
  throw new KernelFailure(doing, result < -1 ? -result : errno(), detail?.());
}

const F_SETFD = 2;
const FD_CLOEXEC = 1;
const F_DUPFD_CLOEXEC = 1_030;

/** Makes the kernel close a descriptor in programs that this process starts. */
export function closeOnExec(fd: number): void {
  check('set a descriptor to close on exec', libc.fcntl(fd, F_SETFD, FD_CLOEXEC));
}

export function duplicate(doing: string, fd: number): number {
  return check(doing, libc.fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

const MEMBARRIER: Record<string, number> = { x64: 324, arm64: 283 };
const BPF: Record<string, number> = { x64: 321, arm64: 280 };

/** Calls membarrier(2) by its system call number, because libc has no function for it. */
export function membarrier(command: number): number {
  return libc.syscall(callNumber(MEMBARRIER), command, 0, 0);
}

/** Calls bpf(2) by its system call number. `attributes` is the `union bpf_attr` of the command. */
export function bpf(command: number, attributes: Uint8Array): number {
  return libc.syscall(callNumber(BPF), command, Number(addressOf(attributes)), attributes.length);
}

function callNumber(numbers: Readonly<Record<string, number>>): number {
  const number = numbers[process.arch];
  if (number === undefined)
    throw new Error(`make a system call: Weir does not support the processor architecture ${process.arch}`);
  return number;
}
