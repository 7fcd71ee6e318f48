import { closeFd } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import type { PinnedMaps } from '#dataplane/object/map-set.js';
import { libbpf } from '#libc/bpf/libbpf.js';

/** The index of each direction in the map `predecessors`, as in `enum predecessor` of the BPF code. */
const AT: Record<Direction, number> = { ingress: 0, egress: 1 };

/**
 * Writes the BPF programs of the datapath in force into the map `predecessors`. The new BPF programs use this
 * map to hand packets to the old programs by tail calls.
 */
export function fillPredecessors(object: BpfObject, inForce: PinnedMaps): void {
  for (const direction of DIRECTIONS) {
    const fd = inForce.openProgram(direction);
    if (fd === undefined) continue;
    try {
      object.setProgram('predecessors', AT[direction], fd);
    } finally {
      closeFd(fd);
    }
  }
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

function u32(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer);
}
