import type { SpliceOffload } from '#contracts/splice-offload.js';
import { guardBit } from '#dataplane/abi/settings.js';
import type { LentObjects } from './lent-objects.js';
import type { LoadedObject } from './loaded-object.js';

/**
 * Returns the maps, the BPF program and the settings with which the service plane offloads spliced
 * connections. They stay valid when the loaded object is replaced by a larger one, which shares these maps.
 */
export function spliceOffloadOf({ options }: LoadedObject, { program, joins, joiners }: LentObjects): SpliceOffload {
  return {
    program,
    joins,
    joiners,
    mark: guardBit(options.markMask),
    idleMs: options.timeoutsMs.tcp_established,
    endedMs: options.timeoutsMs.tcp_closing,
  };
}
