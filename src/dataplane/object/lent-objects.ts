import type { PassedObject } from '#contracts/bpf-object-handle.js';
import { closeFd, mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject, MapName } from '#dataplane/loader/bpf-object.js';
import type { KernelWatchMaps } from '#dataplane/watch/kernel-watch.js';
import { duplicate } from '#libc/libc.js';
import { passedObject } from '#libc/object-handle.js';

/**
 * Maps and programs that other threads of this process use, by descriptors of their own. They stay good while tables grow: larger
 * objects share these maps. The kernel opens an object by its id for CAP_SYS_ADMIN only, and a descriptor for every thread.
 */
export class LentObjects {
  readonly program: PassedObject;
  readonly joins: PassedObject;
  readonly joiners: PassedObject;
  readonly #fds: number[] = [];
  #earFds: number[] = [];

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

  /** For a new ear. Descriptors of an earlier ear, which has ended, are closed. */
  earMaps(object: BpfObject): KernelWatchMaps {
    closeAll(this.#earFds);
    const open = (name: MapName): number => duplicated(object.mapFd(name), this.#earFds);
    const [events, counters, active] = [open('events'), open('counters'), open('active')];
    return { events, ringBytes: mapShape(events).maxEntries, counters, active };
  }

  close(): void {
    closeAll(this.#fds);
    closeAll(this.#earFds);
  }
}

/** Kept one by one, so that those before a failure are closed too. */
function duplicated(fd: number, kept: number[]): number {
  const own = duplicate('lend a descriptor', fd);
  kept.push(own);
  return own;
}

function closeAll(fds: number[]): void {
  for (const fd of fds.splice(0)) closeFd(fd);
}
