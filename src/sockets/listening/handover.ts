import { Descriptors } from '#libc/descriptors.js';
import { EventFd } from '#libc/event-fd.js';
import { duplicate } from '#libc/libc.js';
import { resetSocket } from '#sockets/socket-options.js';

/**
 * The eventfd and the shared memory of a `Handover`. From them, another thread constructs its own object for
 * the same handover.
 */
export type SharedHandover = { readonly eventFd: number; readonly descriptors: SharedArrayBuffer };

/**
 * Sockets that a thread with Node's event loop hands over to another thread, which uses the sockets without
 * Node. An eventfd wakes the other thread.
 */
export class Handover {
  readonly descriptors: Descriptors;
  readonly #eventFd: EventFd;

  constructor(shared?: SharedHandover) {
    this.descriptors = new Descriptors(shared?.descriptors);
    this.#eventFd = new EventFd(shared?.eventFd);
  }

  get shared(): SharedHandover {
    return { eventFd: this.#eventFd.fd, descriptors: this.descriptors.shared };
  }

  /**
   * Returns a duplicate of the descriptor `fd` of a socket. The duplicate stays open when Node closes `fd`.
   */
  take(fd: number): number {
    const taken = duplicate('take over a socket', fd);
    this.descriptors.hold(taken);
    return taken;
  }

  /**
   * Closes a descriptor that `take` returned, with a TCP reset. Call this for a socket that no thread serves.
   */
  drop(fd: number): void {
    this.descriptors.release(fd);
    resetSocket(fd);
  }

  signal(): void {
    this.#eventFd.signal();
  }

  /**
   * Closes every recorded descriptor, sockets with a TCP reset. Call this only after the end of the threads
   * that use the handover.
   */
  close(): void {
    this.descriptors.closeAll(resetSocket);
    this.#eventFd.close();
  }
}
