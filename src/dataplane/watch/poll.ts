import { constants } from 'node:os';
import { KernelFailure } from '#libc/kernel-failure.js';
import { errno, libc } from '#libc/libc.js';

const POLLIN = 1;
// Size of `struct pollfd`, and offset of its field `revents`, in bytes.
const BYTES = 8;
const RETURNED = 6;

/** Waits until one of several file descriptors is readable, by `poll(2)`. */
export class Poll {
  readonly #descriptors: Uint8Array;
  readonly #view: DataView;

  constructor(readonly fds: readonly number[]) {
    this.#descriptors = new Uint8Array(fds.length * BYTES);
    this.#view = new DataView(this.#descriptors.buffer);
    for (const [index, fd] of fds.entries()) {
      this.#view.setInt32(index * BYTES, fd, true);
      this.#view.setInt16(index * BYTES + 4, POLLIN, true);
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
    return index >= 0 && this.#view.getInt16(index * BYTES + RETURNED, true) !== 0;
  }
}
