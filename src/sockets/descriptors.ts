import { libc } from '#libc/libc.js';

/** The limit of descriptors of a process (fs.nr_open). Untouched pages take no memory. */
const CAPACITY = 1 << 20;

/**
 * Descriptors that a thread opened without Node. When the thread dies, they stay open and their ports bound
 * until another thread closes them.
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

  /** Call only after the end of the thread that owns them. */
  closeAll(close: (fd: number) => void = (fd) => libc.close(fd)): void {
    for (let fd = this.#held.indexOf(1); fd >= 0; fd = this.#held.indexOf(1, fd)) {
      this.release(fd);
      close(fd);
    }
  }
}
