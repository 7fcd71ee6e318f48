import { libc } from './libc.js';

/**
 * The size of the array of recorded descriptors: one byte for each descriptor that a process can have
 * (default of fs.nr_open). Memory pages of the array that no thread writes take no memory.
 */
const CAPACITY = 1 << 20;

/**
 * Records the descriptors that a thread opened without Node. When the thread ends, Node does not close these
 * descriptors, and the addresses of their sockets stay in use. Another thread must then close them.
 */
export class Descriptors {
  readonly #held: Uint8Array;

  constructor(readonly shared = new SharedArrayBuffer(CAPACITY)) {
    this.#held = new Uint8Array(shared);
  }

  hold(fd: number): void {
    this.#held[fd] = 1;
  }

  release(fd: number): void {
    this.#held[fd] = 0;
  }

  /**
   * Closes all recorded descriptors. Call this only after the end of the thread that opened the descriptors.
   */
  closeAll(close: (fd: number) => void = (fd) => libc.close(fd)): void {
    for (let fd = this.#held.indexOf(1); fd >= 0; fd = this.#held.indexOf(1, fd)) {
      this.release(fd);
      close(fd);
    }
  }
}
