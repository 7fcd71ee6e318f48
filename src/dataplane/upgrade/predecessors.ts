import { closeFd, programInfo } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import type { PinnedMaps } from '#dataplane/object/map-set.js';
import { libbpf } from '#libc/libbpf.js';
import { check } from '#libc/libc.js';

/** The index of each direction in the map `predecessors`, as in `enum predecessor` of the BPF code. */
const AT: Record<Direction, number> = { ingress: 0, egress: 1 };

/**
 * Writes the BPF programs of the datapath in force into the map `predecessors`. The new BPF programs use
 * this map to hand packets to them by tail calls.
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
 * Opens a BPF program of the datapath in force by its id, which needs CAP_SYS_ADMIN. Builds up to layout
 * version 5 did not pin their programs, so there is no other way.
 */
function openUnpinned(
  direction: Direction,
  inForce: PinnedMaps,
  sets: readonly PinnedMaps[],
  heldPrograms: readonly number[],
): number | undefined {
  // If an earlier takeover was interrupted, the programs in force are not on the hooks. The handover programs
  // of that takeover are on the hooks and call them. So search the map `predecessors` of each pin folder too.
  const candidates = [...heldPrograms, ...sets.flatMap(predecessorsOf)];
  const id = programOf(candidates, `weir_${direction}`, inForce.id('active'));
  return id === undefined ? undefined : check(`open program ${id}`, libbpf().bpf_prog_get_fd_by_id(id));
}

/**
 * Empties the map `predecessors`, so that the BPF programs hand no more packets to the earlier datapath.
 * Must be called after the flows of the earlier datapath were migrated.
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
 * Returns the id of the BPF program among `ids` that has this name and uses this map; undefined if none
 * does. If several do, returns the highest id, which belongs to the youngest program.
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
