import type { PassedObject } from '#contracts/bpf-object-handle.js';
import { libbpf } from './libbpf.js';
import { check, duplicate, libc } from './libc.js';

/** Makes a handle for other threads. The owner must keep `fd` open while they may take it. */
export function passedObject(fd: number): PassedObject {
  return { fd, id: objectId(fd) };
}

/** Returns a new descriptor, which the caller closes. Throws if the owner has closed the object. */
export function takeObject(doing: string, { fd, id }: PassedObject): number {
  const taken = duplicate(doing, fd);
  try {
    if (objectId(taken) !== id) throw new Error(`${doing}: its owner has closed it`);
    return taken;
  } catch (failure) {
    libc.close(taken);
    throw failure;
  }
}

/** `struct bpf_map_info` and `struct bpf_prog_info` both begin with the type and the id. */
export function objectId(fd: number): number {
  const head = new Uint32Array(2);
  const bytes = new Uint8Array(head.buffer);
  check('read object info', libbpf().bpf_obj_get_info_by_fd(fd, bytes, Uint32Array.of(bytes.length)));
  return head[1] ?? 0;
}
