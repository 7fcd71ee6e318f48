import { constants } from 'node:os';
import { KernelFailure } from '#libc/kernel-failure.js';
import { errno, libc } from '#libc/libc.js';

const POLLIN = 1;
// Offsets of the fields of `struct pollfd` and its size, in bytes.
const POLLFD = { fd: 0, events: 4, returned: 6, bytes: 8 } as const;

/** Waits until one of several file descriptors is readable, by `poll(2)`. */
export class Poll {
  readonly #descriptors: Uint8Array;
  readonly #view: DataView;

  constructor(readonly fds: readonly number[]) {
    this.#descriptors = new Uint8Array(fds.length * POLLFD.bytes);
    this.#view = new DataView(this.#descriptors.buffer);
    for (const [index, fd] of fds.entries()) {
      this.#view.setInt32(index * POLLFD.bytes + POLLFD.fd, fd, true);
      this.#view.setInt16(index * POLLFD.bytes + POLLFD.events, POLLIN, true);
    }
  }

  /**
   * Blocks the calling thread. Returns true if a file descriptor is readable. Returns false after the
   * time-out, or if a signal interrupted the wait.
   */
  wait(timeoutMs: number): boolean {
    const ready = libc.poll(this.#descriptors, this.fds.length, timeoutMs);
    if (ready >= 0) return ready > 0;
    const error = errno();
    if (error !== constants.errno.EINTR) throw new KernelFailure('poll', error);
    return false;
  }

  isReadable(fd: number): boolean {
    const index = this.fds.indexOf(fd);
    return index >= 0 && this.#view.getInt16(index * POLLFD.bytes + POLLFD.returned, true) !== 0;
  }
}
