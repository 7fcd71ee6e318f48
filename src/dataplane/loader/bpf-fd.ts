import { Btf, NO_LAYOUT } from '#dataplane/abi/btf.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { objectId } from '#libc/bpf/object-handle.js';
import { check, libc } from '#libc/libc.js';
import { addressOf } from '#libc/library.js';
import type { MapDescription, MapShape } from './bpf-object.js';

export function closeFd(fd: number): void {
  libc.close(fd);
}

export function pin(fd: number, path: string): void {
  check(`pin ${path}`, libbpf().bpf_obj_pin(fd, path));
}

/**
 * Returns a new file descriptor of the BPF map, program or link that is pinned at `path`. The caller must
 * close it.
 */
export function openPinned(path: string): number {
  return check(`open pin ${path}`, libbpf().bpf_obj_get(path));
}

/** Detaches the program of a link from its hook. The link stays, without a hook. */
export function detachLink(fd: number): void {
  check('detach a link', libbpf().bpf_link_detach(fd));
}

function info(fd: number, bytes: Uint8Array): DataView {
  check('read object info', libbpf().bpf_obj_get_info_by_fd(fd, bytes, Uint32Array.of(bytes.length)));
  return new DataView(bytes.buffer);
}

// The offsets below are those of `struct bpf_map_info`.
function shapeIn(view: DataView): MapShape {
  return {
    type: view.getUint32(0, true),
    keySize: view.getUint32(8, true),
    valueSize: view.getUint32(12, true),
    maxEntries: view.getUint32(16, true),
  };
}

export const mapId = objectId;
export const programId = objectId;

export function mapShape(fd: number): MapShape {
  return shapeIn(info(fd, new Uint8Array(88)));
}

/**
 * Returns the shape of a loaded BPF map, and the layouts of its keys and values, which it reads from the BTF
 * of the map. The kernel shows the BTF of a loaded map only to a process with CAP_SYS_ADMIN.
 */
export function describeMap(fd: number): MapDescription {
  const view = info(fd, new Uint8Array(88));
  const shape = shapeIn(view);
  const [btfId, key, value] = [view.getUint32(64, true), view.getUint32(68, true), view.getUint32(72, true)];
  if (btfId === 0) return { ...shape, key: NO_LAYOUT, value: NO_LAYOUT };
  const btf = loadedBtf(btfId);
  return { ...shape, key: btf.layoutOf(key), value: btf.layoutOf(value) };
}

function loadedBtf(id: number): Btf {
  const fd = check('open BTF', libbpf().bpf_btf_get_fd_by_id(id));
  try {
    // `struct bpf_btf_info` begins with the address and the size of the buffer to which the kernel copies the
    // BTF.
    const size = info(fd, new Uint8Array(32)).getUint32(8, true);
    const types = new Uint8Array(size);
    const request = new Uint8Array(32);
    const view = new DataView(request.buffer);
    view.setBigUint64(0, addressOf(types), true);
    view.setUint32(8, size, true);
    info(fd, request);
    return new Btf(types);
  } finally {
    closeFd(fd);
  }
}

export type ProgramInfo = {
  readonly id: number;
  readonly name: string;
  /**
   * The kernel's hash of the program's instructions, as 16 hexadecimal digits. Two programs with the same
   * instructions have the same tag.
   */
  readonly tag: string;
  readonly mapIds: readonly number[];
};

const MAX_MAPS = 64;

/**
 * Returns the description of the BPF program with this id. Undefined if the program does not exist any more,
 * or if this process has no CAP_SYS_ADMIN.
 */
export function programInfo(id: number): ProgramInfo | undefined {
  const fd = libbpf().bpf_prog_get_fd_by_id(id);
  if (fd < 0) return undefined;
  try {
    return programInfoOf(fd);
  } finally {
    closeFd(fd);
  }
}

export function programInfoOf(fd: number): ProgramInfo {
  // The offsets below are those of `struct bpf_prog_info`.
  const bytes = new Uint8Array(80);
  const maps = new Uint32Array(MAX_MAPS);
  const request = new DataView(bytes.buffer);
  request.setUint32(52, maps.length, true);
  request.setBigUint64(56, addressOf(maps), true);
  const view = info(fd, bytes);
  const name = new TextDecoder().decode(bytes.subarray(64, 80));
  return {
    id: view.getUint32(4, true),
    name: name.slice(0, name.indexOf('\0')),
    tag: Buffer.from(bytes.subarray(8, 16)).toString('hex'),
    mapIds: [...maps.subarray(0, Math.min(MAX_MAPS, view.getUint32(52, true)))],
  };
}

/**
 * Returns the id of the BPF program and the interface index of a TCX link. `ifindex` is 0 after the
 * interface was removed or the link was detached.
 */
export function linkInfo(fd: number): { readonly programId: number; readonly ifindex: number } {
  const view = info(fd, new Uint8Array(32));
  return { programId: view.getUint32(8, true), ifindex: view.getUint32(16, true) };
}
