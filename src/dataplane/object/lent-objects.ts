import type { PassedObject } from '#contracts/bpf-object-handle.js';
import { closeFd, mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject, MapName } from '#dataplane/loader/bpf-object.js';
import type { KernelWatchMaps } from '#dataplane/watch/kernel-watch.js';
import { duplicate } from '#libc/libc.js';
import { passedObject } from '#libc/object-handle.js';

/**
 * BPF maps and a BPF program that other threads of this process use, by duplicated file descriptors. The
 * descriptors stay valid when the loaded object is replaced by a larger one, since the larger object shares
 * these maps. Threads get descriptors and not ids: only a process with CAP_SYS_ADMIN can open a BPF object by
 * its id.
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
   * Returns the maps for a new kernel-watch thread, by new file descriptors. Closes the descriptors of the
   * previous kernel-watch thread, which must have ended.
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
 * Duplicates a file descriptor and adds it to `kept` immediately, so that a later failure closes this
 * descriptor too.
 */
function duplicated(fd: number, kept: number[]): number {
  const own = duplicate('lend a descriptor', fd);
  kept.push(own);
  return own;
}

function closeAll(fds: number[]): void {
  for (const fd of fds.splice(0)) closeFd(fd);
}
