import { mapSetsIn } from '#dataplane/object/map-set.js';
import type { Interface } from './interfaces.js';
import { OwnedElsewhere } from './ownership.js';
import { mapSetOf, weirHooks } from './weir-hooks.js';

/**
 * Throws `OwnedElsewhere` if BPF programs of another Weir node, with another pin path, are on the same
 * interfaces, because two policies would then apply to each packet. `held` are the ids of BPF programs that
 * belong to this node. Ignores a clsact program without any pin, which belongs to no node; a later attach
 * replaces that program.
 */
export function refuseOtherNodes(pinPath: string, policed: readonly Interface[], held: readonly number[]): void {
  const sets = mapSetsIn(pinPath);
  try {
    for (const { interface: found, by, program, pinPath: path } of weirHooks(policed, pinPath)) {
      if (path === pinPath || mapSetOf(program, sets) !== undefined) continue;
      if (path !== undefined) {
        throw new OwnedElsewhere(
          `${found.name} is policed by the datapath of another node, pinned in ${path}: set dataplane.pin_path to that folder, or remove the datapath with weir dataplane detach --pin-path ${path}`,
        );
      }
      if (by === 'tcx' && !held.includes(program.id)) {
        throw new OwnedElsewhere(
          `${found.name} is policed by program ${program.id} of another node, whose pins are not in /sys/fs/bpf: detach that program first`,
        );
      }
    }
  } finally {
    for (const set of sets) set.close();
  }
}
