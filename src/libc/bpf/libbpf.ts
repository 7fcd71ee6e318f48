import { bindLibrary, type Pointer } from '#libc/library.js';

type Libbpf = {
  libbpf_set_print(print: null): Pointer;
  bpf_object__open_file(path: string, options: Uint8Array): Pointer | null;
  bpf_object__load(object: Pointer): number;
  bpf_object__close(object: Pointer): void;
  bpf_object__find_map_by_name(object: Pointer, name: string): Pointer | null;
  bpf_object__find_program_by_name(object: Pointer, name: string): Pointer | null;
  bpf_object__next_program(object: Pointer, previous: Pointer | null): Pointer | null;
  bpf_program__set_attach_target(program: Pointer, fd: number, name: string): number;
  bpf_program__fd(program: Pointer): number;
  bpf_program__set_autoload(program: Pointer, autoload: boolean): number;
  bpf_program__set_type(program: Pointer, type: number): number;
  bpf_program__set_expected_attach_type(program: Pointer, type: number): number;
  bpf_map__fd(map: Pointer): number;
  bpf_map__set_max_entries(map: Pointer, entries: number): number;
  bpf_map__set_value_size(map: Pointer, bytes: number): number;
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
  bpf_map_lookup_and_delete_elem(fd: number, key: Uint8Array, value: Uint8Array): number;
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

const LIBBPF: Record<keyof Libbpf, string> = {
  libbpf_set_print: 'void *libbpf_set_print(void *print)',
  bpf_object__open_file: 'void *bpf_object__open_file(const char *path, const void *options)',
  bpf_object__load: 'int bpf_object__load(void *object)',
  bpf_object__close: 'void bpf_object__close(void *object)',
  bpf_object__find_map_by_name: 'void *bpf_object__find_map_by_name(void *object, const char *name)',
  bpf_object__find_program_by_name: 'void *bpf_object__find_program_by_name(void *object, const char *name)',
  bpf_object__next_program: 'void *bpf_object__next_program(void *object, void *previous)',
  bpf_program__set_attach_target: 'int bpf_program__set_attach_target(void *program, int fd, const char *name)',
  bpf_program__fd: 'int bpf_program__fd(void *program)',
  bpf_program__set_autoload: 'int bpf_program__set_autoload(void *program, bool autoload)',
  bpf_program__set_type: 'int bpf_program__set_type(void *program, int type)',
  bpf_program__set_expected_attach_type: 'int bpf_program__set_expected_attach_type(void *program, int type)',
  bpf_map__fd: 'int bpf_map__fd(void *map)',
  bpf_map__set_max_entries: 'int bpf_map__set_max_entries(void *map, uint32_t entries)',
  bpf_map__set_value_size: 'int bpf_map__set_value_size(void *map, uint32_t bytes)',
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
  bpf_map_lookup_and_delete_elem: 'int bpf_map_lookup_and_delete_elem(int fd, const void *key, _Out_ void *value)',
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

let loaded: Libbpf | undefined;
/** Loads libbpf on the first call. Throws if libbpf is not installed. */
export function libbpf(): Libbpf {
  if (loaded === undefined) {
    loaded = bindLibrary<Libbpf>('libbpf.so.1', LIBBPF);
    // Stop libbpf from printing to stderr. `BpfObject` adds the log of the BPF verifier to its errors.
    loaded.libbpf_set_print(null);
  }
  return loaded;
}
