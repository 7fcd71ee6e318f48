import { u32At } from '#arrays/read.js';
import type { PassedObject } from '#contracts/datapath/bpf-object-handle.js';
import { check, duplicate, libc } from '#libc/libc.js';
import { libbpf } from './libbpf.js';

/**
 * Returns a handle of a BPF map or BPF program for other threads. The owner must keep `fd` open while another
 * thread may call `takeObject`.
 */
export function passedObject(fd: number): PassedObject {
  return { fd, id: objectId(fd) };
}

/**
 * Returns a new descriptor of the BPF map or BPF program; the caller must close the new descriptor. Throws if
 * the owner has closed `fd`, or if `fd` now belongs to another object.
 */
export function takeObject(doing: string, { fd, id }: PassedObject): number {
  const taken = duplicate(doing, fd);
  try {
    if (objectId(taken) !== id)
      throw new Error(`${doing}: the thread that passed the file descriptor of this BPF object has closed it`);
    return taken;
  } catch (failure) {
    libc.close(taken);
    throw failure;
  }
}

/**
 * Returns the kernel id of a BPF map or BPF program. `struct bpf_map_info` and `struct bpf_prog_info` both
 * begin with type and id, so 8 bytes suffice.
 */
export function objectId(fd: number): number {
  const head = new Uint32Array(2);
  const bytes = new Uint8Array(head.buffer);
  check('read object info', libbpf().bpf_obj_get_info_by_fd(fd, bytes, Uint32Array.of(bytes.length)));
  return u32At(head, 1);
}
