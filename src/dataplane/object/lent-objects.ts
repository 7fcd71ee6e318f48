import type { PassedObject } from '#contracts/datapath/bpf-object-handle.js';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import { guardBit } from '#dataplane/abi/settings.js';
import { closeFd, mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject, MapName } from '#dataplane/loader/bpf-object.js';
import type { KernelWatchMaps } from '#dataplane/watch/kernel-watch.js';
import { passedObject } from '#libc/bpf/object-handle.js';
import { duplicate } from '#libc/libc.js';
import type { LoadedObject } from './loaded-object.js';

/**
 * BPF maps and a BPF program that other threads of this process use, through duplicated file descriptors.
 * The descriptors stay valid when a BPF object with larger maps replaces the loaded object. The new object
 * uses the same maps `joins` and `joiners`. Threads get descriptors and not ids, because only a process with
 * CAP_SYS_ADMIN can open a BPF map by its id.
 */
export class LentObjects {
  readonly program: PassedObject;
  readonly spliceMap: PassedObject;
  readonly offloaderMap: PassedObject;
  readonly #fds: number[] = [];
  #kernelWatchFds: number[] = [];

  constructor(object: BpfObject) {
    const lend = (fd: number): PassedObject => passedObject(duplicated(fd, this.#fds));
    try {
      this.program = lend(object.programFd('weir_join'));
      this.spliceMap = lend(object.mapFd('joins'));
      this.offloaderMap = lend(object.mapFd('joiners'));
    } catch (failure) {
      this.close();
      throw failure;
    }
  }

  /**
   * Returns the maps that a new kernel-watch thread reads, as new file descriptors. Closes the descriptors
   * of the previous kernel-watch thread, which must have ended.
   */
  kernelWatchMaps(object: BpfObject): KernelWatchMaps {
    closeAll(this.#kernelWatchFds);
    const open = (name: MapName): number => duplicated(object.mapFd(name), this.#kernelWatchFds);
    const [events, counters, active] = [open('events'), open('counters'), open('active')];
    return { events, ringBytes: mapShape(events).maxEntries, counters, active };
  }

  close(): void {
    closeAll(this.#fds);
    closeAll(this.#kernelWatchFds);
  }
}

/**
 * Duplicates a file descriptor and adds the duplicate to `kept` immediately, so that `close` also closes it
 * if a later step fails.
 */
function duplicated(fd: number, kept: number[]): number {
  const own = duplicate('lend a descriptor', fd);
  kept.push(own);
  return own;
}

function closeAll(fds: number[]): void {
  for (const fd of fds.splice(0)) closeFd(fd);
}

/**
 * Returns the maps, the BPF program and the settings with which the service plane (TLS and HTTP inspection)
 * offloads spliced connections to the datapath. The maps and the program stay usable when a BPF object with
 * larger maps replaces the loaded object. The new object uses the same maps `joins` and `joiners`.
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
