import type { MapShape } from './bpf-object.js';
import { check, libbpf, libc } from './libc.js';

export function closeFd(fd: number): void {
  libc.close(fd);
}

export function pin(fd: number, path: string): void {
  check(`pin ${path}`, libbpf().bpf_obj_pin(fd, path));
}

/** The descriptor of what is pinned at `path`. */
export function openPinned(path: string): number {
  return check(`open pin ${path}`, libbpf().bpf_obj_get(path));
}

function info(fd: number, size: number): DataView {
  const bytes = new Uint8Array(size);
  check('read object info', libbpf().bpf_obj_get_info_by_fd(fd, bytes, Uint32Array.of(size)));
  return new DataView(bytes.buffer);
}

export function mapShape(fd: number): MapShape {
  const view = info(fd, 88);
  return {
    type: view.getUint32(0, true),
    keySize: view.getUint32(8, true),
    valueSize: view.getUint32(12, true),
    maxEntries: view.getUint32(16, true),
  };
}

export function programId(fd: number): number {
  return info(fd, 16).getUint32(4, true);
}

/** `ifindex` is 0 once the interface is gone or the link was detached. */
export function linkInfo(fd: number): { readonly programId: number; readonly ifindex: number } {
  const view = info(fd, 32);
  return { programId: view.getUint32(8, true), ifindex: view.getUint32(16, true) };
}
