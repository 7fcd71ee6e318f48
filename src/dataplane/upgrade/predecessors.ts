import { closeFd, programInfo } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import type { MapSet } from '#dataplane/object/map-set.js';
import { libbpf } from '#libc/libbpf.js';
import { check } from '#libc/libc.js';

/** Indexes of `enum predecessor`. */
const AT: Record<Direction, number> = { ingress: 0, egress: 1 };

/**
 * Writes the programs of the set in force into the map `predecessors`, so that the new programs can call
 * them.
 */
export function fillPredecessors(
  object: BpfObject,
  inForce: MapSet,
  sets: readonly MapSet[],
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

/** Up to layout 5 programs were not pinned: opening one by its id needs CAP_SYS_ADMIN. */
function openUnpinned(
  direction: Direction,
  inForce: MapSet,
  sets: readonly MapSet[],
  heldPrograms: readonly number[],
): number | undefined {
  // If an earlier takeover was interrupted, the programs in force are called by its bridge.
  const candidates = [...heldPrograms, ...sets.flatMap(predecessorsOf)];
  const id = programOf(candidates, `weir_${direction}`, inForce.id('active'));
  return id === undefined ? undefined : check(`open program ${id}`, libbpf().bpf_prog_get_fd_by_id(id));
}

/** Call when the predecessors no longer classify packets. */
export function clearPredecessors(object: BpfObject): void {
  for (const direction of DIRECTIONS) {
    libbpf().bpf_map_delete_elem(object.mapFd('predecessors'), u32(AT[direction]));
  }
}

function predecessorsOf(set: MapSet): number[] {
  if (!set.has('predecessors')) return [];
  const value = new Uint8Array(4);
  return DIRECTIONS.flatMap((direction) => {
    const found = libbpf().bpf_map_lookup_elem(set.fd('predecessors'), u32(AT[direction]), value) >= 0;
    return found ? [new DataView(value.buffer).getUint32(0, true)] : [];
  });
}

/** The youngest of these programs that has this name and uses this map. */
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
