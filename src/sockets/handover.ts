import { Bell } from '#libc/bell.js';
import { duplicate } from '#libc/libc.js';
import { Descriptors } from './descriptors.js';
import { resetSocket } from './socket-options.js';

/** The data by which threads share a handover. */
export type SharedHandover = { readonly bell: number; readonly descriptors: SharedArrayBuffer };

/**
 * Sockets that Node hands over to a thread, which serves them without Node, and an eventfd that wakes that
 * thread.
 */
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

  /** Returns another descriptor of this socket, which stays open when the first one is closed. */
  take(fd: number): number {
    const taken = duplicate('take over a socket', fd);
    this.descriptors.hold(taken);
    return taken;
  }

  /** Resets a socket that was taken, if no thread serves it. */
  drop(fd: number): void {
    this.descriptors.release(fd);
    resetSocket(fd);
  }

  ring(): void {
    this.#bell.ring();
  }

  /** Resets every connection that was taken. Call only after the end of the threads. */
  close(): void {
    this.descriptors.closeAll(resetSocket);
    this.#bell.close();
  }
}
