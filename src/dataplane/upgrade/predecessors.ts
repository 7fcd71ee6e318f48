import { closeFd, programInfo } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import type { PinnedMaps } from '#dataplane/object/map-set.js';
import { libbpf } from '#libc/libbpf.js';
import { check } from '#libc/libc.js';

/** Indexes in the map `predecessors`, as in `enum predecessor` of the datapath. */
const AT: Record<Direction, number> = { ingress: 0, egress: 1 };

/**
 * Writes the BPF programs of the datapath in force into the map `predecessors`, so that the new BPF programs
 * can hand packets to them by tail calls.
 */
export function fillPredecessors(
  object: BpfObject,
  inForce: PinnedMaps,
  sets: readonly PinnedMaps[],
  heldPrograms: readonly number[],
): void {
  for (const direction of DIRECTIONS) {
    const fd = inForce.openProgram(direction) ?? openUnpinned(direction, inForce, sets, heldPrograms);
    if (fd === undefined) continue;
    try {
      const result = libbpf().bpf_map_update_elem(object.mapFd('predecessors'), u32(AT[direction]), u32(fd), 0);
      check('name the predecessor', result);
    } finally {
      closeFd(fd);
    }
  }
}

/**
 * Opens a BPF program of the datapath in force by its id, which needs CAP_SYS_ADMIN. This is necessary for
 * builds up to layout version 5, which did not pin their programs.
 */
function openUnpinned(
  direction: Direction,
  inForce: PinnedMaps,
  sets: readonly PinnedMaps[],
  heldPrograms: readonly number[],
): number | undefined {
  // If an earlier takeover was interrupted, the programs in force are not on the hooks: the bridge of that
  // takeover calls them. So the map `predecessors` of each set is searched too.
  const candidates = [...heldPrograms, ...sets.flatMap(predecessorsOf)];
  const id = programOf(candidates, `weir_${direction}`, inForce.id('active'));
  return id === undefined ? undefined : check(`open program ${id}`, libbpf().bpf_prog_get_fd_by_id(id));
}

/**
 * Empties the map `predecessors`, so that no BPF program hands packets to the earlier datapath any more. Must
 * be called after the flows of the earlier datapath were migrated.
 */
export function clearPredecessors(object: BpfObject): void {
  for (const direction of DIRECTIONS) {
    libbpf().bpf_map_delete_elem(object.mapFd('predecessors'), u32(AT[direction]));
  }
}

function predecessorsOf(set: PinnedMaps): number[] {
  if (!set.has('predecessors')) return [];
  const value = new Uint8Array(4);
  return DIRECTIONS.flatMap((direction) => {
    const found = libbpf().bpf_map_lookup_elem(set.fd('predecessors'), u32(AT[direction]), value) >= 0;
    return found ? [new DataView(value.buffer).getUint32(0, true)] : [];
  });
}

/**
 * Returns the id of the youngest of these BPF programs that has this name and uses this map; undefined if
 * there is none.
 */
function programOf(ids: readonly number[], name: string, map: number): number | undefined {
  return [...new Set(ids)]
    .sort((a, b) => b - a)
    .find((id) => {
      const found = programInfo(id);
      return found?.name === name && found.mapIds.includes(map);
    });
}

function u32(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer);
}
