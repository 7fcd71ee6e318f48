import { libc } from '#libc/libc.js';

const CAPACITY = 65_536;

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
  closeAll(): void {
    for (let fd = this.#held.indexOf(1); fd >= 0; fd = this.#held.indexOf(1, fd)) {
      this.release(fd);
      libc.close(fd);
    }
  }
}
