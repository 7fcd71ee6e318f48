import { programId } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import type { Direction } from '#dataplane/loader/direction.js';

/** Returns the ids of the programs for the ingress hook and for the egress hook. */
export function programIds(object: BpfObject): Readonly<Record<Direction, number>> {
  return {
    ingress: programId(object.programFd('weir_ingress')),
    egress: programId(object.programFd('weir_egress')),
  };
}
