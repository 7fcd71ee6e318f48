import type { PassedObject } from '#contracts/bpf-object-handle.js';
import { closeFd, mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject, MapName } from '#dataplane/loader/bpf-object.js';
import type { KernelWatchMaps } from '#dataplane/watch/kernel-watch.js';
import { duplicate } from '#libc/libc.js';
import { passedObject } from '#libc/object-handle.js';

/**
 * Maps and programs that other threads of this process use, by descriptors of their own. They remain valid
 * while tables grow, since larger objects share these maps. A descriptor works for every thread, while the
 * kernel opens an object by its id for CAP_SYS_ADMIN only.
 */
export class LentObjects {
  readonly program: PassedObject;
  readonly joins: PassedObject;
  readonly joiners: PassedObject;
  readonly #fds: number[] = [];
  #kernelWatchFds: number[] = [];

  constructor(object: BpfObject) {
    const lend = (fd: number): PassedObject => passedObject(duplicated(fd, this.#fds));
    try {
      this.program = lend(object.programFd('weir_join'));
      this.joins = lend(object.mapFd('joins'));
      this.joiners = lend(object.mapFd('joiners'));
    } catch (failure) {
      this.close();
      throw failure;
    }
  }

  /**
   * The maps for a new kernel-watch thread. Closes the descriptors of the previous thread, which has ended.
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

/** Records each descriptor at once, so that a later failure closes the earlier ones too. */
function duplicated(fd: number, kept: number[]): number {
  const own = duplicate('lend a descriptor', fd);
  kept.push(own);
  return own;
}

function closeAll(fds: number[]): void {
  for (const fd of fds.splice(0)) closeFd(fd);
}
