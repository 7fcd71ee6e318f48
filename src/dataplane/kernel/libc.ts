import koffi from 'koffi';
import { KernelFailure } from './failure.js';

/**
 * Every foreign function that is called, with its prototype: a wrong one is a crash. Buffers are passed as they are;
 * structs that hold pointers are built by hand, and what they point to must be referenced until the call returns.
 */
type Pointer = bigint;
type Libc = {
  mmap(address: null, length: number, protection: number, flags: number, fd: number, offset: number): Pointer;
  munmap(address: Pointer, length: number): number;
  close(fd: number): number;
  flock(fd: number, operation: number): number;
  mount(source: string, target: string, type: string, flags: number, data: null): number;
  statfs(path: string, into: Uint8Array): number;
  socket(domain: number, type: number, protocol: number): number;
  bind(fd: number, address: Uint8Array, length: number): number;
  send(fd: number, bytes: Uint8Array, length: number, flags: number): number;
  recv(fd: number, into: Uint8Array, length: number, flags: number): number;
  poll(descriptors: Uint8Array, count: number, timeoutMs: number): number;
  eventfd(count: number, flags: number): number;
  write(fd: number, bytes: Uint8Array, length: number): number;
  getpagesize(): number;
  ioctl(fd: number, request: number, argument: Uint8Array): number;
  if_nameindex(): Pointer;
  if_freenameindex(list: Pointer): void;
  syscall(number: number, first: number, second: number, third: number): number;
};
type Libbpf = {
  libbpf_set_print(print: null): Pointer;
  bpf_object__open_file(path: string, options: Uint8Array): Pointer | null;
  bpf_object__load(object: Pointer): number;
  bpf_object__close(object: Pointer): void;
  bpf_object__find_map_by_name(object: Pointer, name: string): Pointer | null;
  bpf_object__find_program_by_name(object: Pointer, name: string): Pointer | null;
  bpf_program__fd(program: Pointer): number;
  bpf_map__fd(map: Pointer): number;
  bpf_map__set_max_entries(map: Pointer, entries: number): number;
  bpf_map__key_size(map: Pointer): number;
  bpf_map__value_size(map: Pointer): number;
  bpf_map__max_entries(map: Pointer): number;
  bpf_map__type(map: Pointer): number;
  bpf_map__reuse_fd(map: Pointer, fd: number): number;
  bpf_map__initial_value(map: Pointer, size: BigUint64Array): Pointer | null;
  bpf_map__btf_key_type_id(map: Pointer): number;
  bpf_map__btf_value_type_id(map: Pointer): number;
  bpf_object__btf(object: Pointer): Pointer | null;
  btf__raw_data(btf: Pointer, size: Uint32Array): Pointer | null;
  bpf_obj_pin(fd: number, path: string): number;
  bpf_obj_get(path: string): number;
  bpf_obj_get_info_by_fd(fd: number, info: Uint8Array, length: Uint32Array): number;
  bpf_prog_get_fd_by_id(id: number): number;
  bpf_map_get_fd_by_id(id: number): number;
  bpf_btf_get_fd_by_id(id: number): number;
  bpf_link_create(program: number, target: number, type: number, options: null): number;
  bpf_link_update(link: number, program: number, options: null): number;
  bpf_link_detach(link: number): number;
  bpf_prog_test_run_opts: {
    (program: number, options: Uint8Array): number;
    async(program: number, options: Uint8Array, done: (error: Error | null, result: number) => void): void;
  };
  bpf_map_lookup_elem(fd: number, key: Uint8Array, value: Uint8Array): number;
  bpf_map_update_elem(fd: number, key: Uint8Array, value: Uint8Array, flags: number): number;
  bpf_map_lookup_batch(
    fd: number,
    from: Uint8Array | null,
    next: Uint8Array,
    keys: Uint8Array,
    values: Uint8Array,
    count: Uint32Array,
    options: null,
  ): number;
  bpf_map_get_next_key(fd: number, key: Uint8Array | null, next: Uint8Array): number;
  bpf_map_delete_elem(fd: number, key: Uint8Array): number;
  bpf_prog_query(
    target: number,
    type: number,
    flags: number,
    attachFlags: Uint32Array,
    ids: Uint32Array,
    count: Uint32Array,
  ): number;
  bpf_tc_hook_create(hook: Uint8Array): number;
  bpf_tc_attach(hook: Uint8Array, options: Uint8Array): number;
  bpf_tc_detach(hook: Uint8Array, options: Uint8Array): number;
  bpf_tc_query(hook: Uint8Array, options: Uint8Array): number;
  libbpf_num_possible_cpus(): number;
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
  send: 'long send(int fd, const void *bytes, size_t length, int flags)',
  recv: 'long recv(int fd, _Out_ void *into, size_t length, int flags)',
  poll: 'int poll(_Inout_ void *descriptors, ulong count, int timeout)',
  eventfd: 'int eventfd(uint32_t count, int flags)',
  write: 'long write(int fd, const void *bytes, size_t length)',
  getpagesize: 'int getpagesize()',
  ioctl: 'int ioctl(int fd, ulong request, _Inout_ void *argument)',
  if_nameindex: 'void *if_nameindex()',
  if_freenameindex: 'void if_freenameindex(void *list)',
  syscall: 'long syscall(long number, long first, long second, long third)',
};
const LIBBPF: Record<keyof Libbpf, string> = {
  libbpf_set_print: 'void *libbpf_set_print(void *print)',
  bpf_object__open_file: 'void *bpf_object__open_file(const char *path, const void *options)',
  bpf_object__load: 'int bpf_object__load(void *object)',
  bpf_object__close: 'void bpf_object__close(void *object)',
  bpf_object__find_map_by_name: 'void *bpf_object__find_map_by_name(void *object, const char *name)',
  bpf_object__find_program_by_name: 'void *bpf_object__find_program_by_name(void *object, const char *name)',
  bpf_program__fd: 'int bpf_program__fd(void *program)',
  bpf_map__fd: 'int bpf_map__fd(void *map)',
  bpf_map__set_max_entries: 'int bpf_map__set_max_entries(void *map, uint32_t entries)',
  bpf_map__key_size: 'uint32_t bpf_map__key_size(void *map)',
  bpf_map__value_size: 'uint32_t bpf_map__value_size(void *map)',
  bpf_map__max_entries: 'uint32_t bpf_map__max_entries(void *map)',
  bpf_map__type: 'int bpf_map__type(void *map)',
  bpf_map__reuse_fd: 'int bpf_map__reuse_fd(void *map, int fd)',
  bpf_map__initial_value: 'void *bpf_map__initial_value(void *map, _Out_ size_t *size)',
  bpf_map__btf_key_type_id: 'uint32_t bpf_map__btf_key_type_id(void *map)',
  bpf_map__btf_value_type_id: 'uint32_t bpf_map__btf_value_type_id(void *map)',
  bpf_object__btf: 'void *bpf_object__btf(void *object)',
  btf__raw_data: 'void *btf__raw_data(void *btf, _Out_ uint32_t *size)',
  bpf_prog_get_fd_by_id: 'int bpf_prog_get_fd_by_id(uint32_t id)',
  bpf_map_get_fd_by_id: 'int bpf_map_get_fd_by_id(uint32_t id)',
  bpf_btf_get_fd_by_id: 'int bpf_btf_get_fd_by_id(uint32_t id)',
  bpf_obj_pin: 'int bpf_obj_pin(int fd, const char *path)',
  bpf_obj_get: 'int bpf_obj_get(const char *path)',
  bpf_obj_get_info_by_fd: 'int bpf_obj_get_info_by_fd(int fd, _Inout_ void *info, _Inout_ uint32_t *length)',
  bpf_link_create: 'int bpf_link_create(int program, int target, int type, const void *options)',
  bpf_link_update: 'int bpf_link_update(int link, int program, const void *options)',
  bpf_link_detach: 'int bpf_link_detach(int link)',
  bpf_prog_test_run_opts: 'int bpf_prog_test_run_opts(int program, _Inout_ void *options)',
  bpf_map_lookup_elem: 'int bpf_map_lookup_elem(int fd, const void *key, _Out_ void *value)',
  bpf_map_update_elem: 'int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags)',
  bpf_map_lookup_batch:
    'int bpf_map_lookup_batch(int fd, void *from, _Out_ void *next, _Out_ void *keys, _Out_ void *values, _Inout_ uint32_t *count, const void *options)',
  bpf_map_get_next_key: 'int bpf_map_get_next_key(int fd, const void *key, _Out_ void *next)',
  bpf_map_delete_elem: 'int bpf_map_delete_elem(int fd, const void *key)',
  bpf_prog_query:
    'int bpf_prog_query(int target, int type, uint32_t flags, _Out_ uint32_t *attach_flags, _Inout_ uint32_t *ids, _Inout_ uint32_t *count)',
  bpf_tc_hook_create: 'int bpf_tc_hook_create(_Inout_ void *hook)',
  bpf_tc_attach: 'int bpf_tc_attach(const void *hook, _Inout_ void *options)',
  bpf_tc_detach: 'int bpf_tc_detach(const void *hook, const void *options)',
  bpf_tc_query: 'int bpf_tc_query(const void *hook, _Inout_ void *options)',
  libbpf_num_possible_cpus: 'int libbpf_num_possible_cpus()',
};

function bind<T>(library: string | null, prototypes: Record<keyof T, string>): T {
  const handle = koffi.load(library);
  const bound: Record<string, unknown> = {};
  for (const [name, prototype] of Object.entries<string>(prototypes)) bound[name] = handle.func(prototype);
  return bound as T;
}

export const libc = bind<Libc>(null, LIBC);

let loaded: Libbpf | undefined;
/** Throws where libbpf is not installed; `probe` says so. */
export function libbpf(): Libbpf {
  if (loaded === undefined) {
    loaded = bind<Libbpf>('libbpf.so.1', LIBBPF);
    // Its messages go into failures (the verifier's log), not to stderr.
    loaded.libbpf_set_print(null);
  }
  return loaded;
}

/** The result of a call that answers a negative number when it fails. */
export function check(doing: string, result: number, detail?: () => string): number {
  if (result >= 0) return result;
  // libbpf answers -errno, libc -1 and errno.
  throw new KernelFailure(doing, result < -1 ? -result : koffi.errno(), detail?.());
}

export function addressOf(buffer: ArrayBufferView): bigint {
  return koffi.address(buffer);
}

/** Memory at an address, without a copy. It must not be unmapped while this is in use. */
export function memoryAt(address: bigint, length: number): ArrayBuffer {
  return koffi.view(address, length);
}

const MEMBARRIER: Record<string, number> = { x64: 324, arm64: 283 };

/** membarrier(2), which libc has no function for. */
export function membarrier(command: number): number {
  const number = MEMBARRIER[process.arch];
  if (number === undefined) throw new Error(`Weir does not know the system calls of ${process.arch}`);
  return libc.syscall(number, command, 0, 0);
}
