import { Bell } from '#libc/bell.js';
import { duplicate } from '#libc/libc.js';
import { Descriptors } from './descriptors.js';
import { resetSocket } from './socket-options.js';

/** What threads are given to share a handover. */
export type SharedHandover = { readonly bell: number; readonly descriptors: SharedArrayBuffer };

/** Sockets on their way from Node to a thread that serves them without Node, and a bell that wakes that thread. */
export class Handover {
  readonly descriptors: Descriptors;
  readonly #bell: Bell;

  constructor(shared?: SharedHandover) {
    this.descriptors = new Descriptors(shared?.descriptors);
    this.#bell = new Bell(shared?.bell);
  }

  get shared(): SharedHandover {
    return { bell: this.#bell.fd, descriptors: this.descriptors.shared };
  }

  /** Another descriptor of this socket, which stays open when the first one is closed. */
  take(fd: number): number {
    const taken = duplicate('take over a socket', fd);
    this.descriptors.hold(taken);
    return taken;
  }

  /** Of what was taken, and not served. */
  drop(fd: number): void {
    this.descriptors.release(fd);
    resetSocket(fd);
  }

  ring(): void {
    this.#bell.ring();
  }

  /** Resets every connection that was taken. Only once the threads are no more. */
  close(): void {
    this.descriptors.closeAll(resetSocket);
    this.#bell.close();
  }
}
