import { libc } from '#libc/libc.js';

/** As many as a process may have (fs.nr_open); what is not used takes no memory. */
const CAPACITY = 1 << 20;

/**
 * The descriptors that a thread has open without Node's knowledge. They stay open when it dies, ports bound, until
 * another thread closes them.
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

  /** Only once the thread is no more. */
  closeAll(close: (fd: number) => void = (fd) => libc.close(fd)): void {
    for (let fd = this.#held.indexOf(1); fd >= 0; fd = this.#held.indexOf(1, fd)) {
      this.release(fd);
      close(fd);
    }
  }
}
