import { guardBit } from '#dataplane/program/settings.js';
import type { JoinPoint } from '#policy/join-point.js';
import { mapId, programId } from './bpf-fd.js';
import type { LoadedObject } from './loaded-object.js';

/** It stays good when the object is replaced by a larger one, which shares these maps. */
export function joinPointOf({ object, options }: LoadedObject): JoinPoint {
  return {
    program: programId(object.programFd('weir_join')),
    joins: mapId(object.mapFd('joins')),
    joiners: mapId(object.mapFd('joiners')),
    mark: guardBit(options.markMask),
    idleMs: options.timeoutsMs.tcp_established,
    endedMs: options.timeoutsMs.tcp_closing,
  };
}
