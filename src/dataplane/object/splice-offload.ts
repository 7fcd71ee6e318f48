import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import { guardBit } from '#dataplane/abi/settings.js';
import type { LentObjects } from './lent-objects.js';
import type { LoadedObject } from './loaded-object.js';

/**
 * Returns the maps, the BPF program and the settings with which the service plane offloads spliced
 * connections to the datapath. The maps and the program stay usable when a BPF object with larger maps
 * replaces the loaded object. The new object uses the same maps `joins` and `joiners`.
 */
export function spliceOffloadOf(
  { options }: LoadedObject,
  { program, spliceMap, offloaderMap }: LentObjects,
): SpliceOffload {
  return {
    program,
    spliceMap,
    offloaderMap,
    mark: guardBit(options.markMask),
    idleMs: options.timeoutsMs.tcp_established,
    endedMs: options.timeoutsMs.tcp_closing,
  };
}
