import type { Descriptors } from '#libc/descriptors.js';
import { libc } from '#libc/libc.js';
import { isReserved } from '#sockets/listening/descriptor-reserve.js';

const O_NONBLOCK_CLOEXEC = 0o2004000;
const F_SETPIPE_SZ = 1_031;
/**
 * The capacity of a pipe in bytes. If the receiver of a connection is slow, at most this many bytes wait in
 * the pipe of its direction.
 */
export const PIPE_BYTES = 256 << 10;
/** The maximum number of empty pipes that the pool keeps for reuse. */
const SPARE = 16;

/** The descriptors of the read end and the write end of a pipe. */
export type Pipe = { readonly read: number; readonly write: number };

/**
 * A pool of pipes. splice(2) moves bytes from one socket into a pipe, and from the pipe into the other
 * socket.
 */
export class PipePool {
  readonly #spare: Pipe[] = [];

  constructor(private readonly descriptors: Descriptors) {}

  /** Returns an empty pipe; null if the process has too few free descriptors for a new pipe. */
  take(): Pipe | null {
    return this.#spare.pop() ?? this.#make();
  }

  /** Returns an empty pipe to the pool. */
  giveBack(pipe: Pipe): void {
    if (this.#spare.length < SPARE) this.#spare.push(pipe);
    else this.close(pipe);
  }

  close(pipe: Pipe): void {
    for (const fd of [pipe.read, pipe.write]) {
      this.descriptors.release(fd);
      libc.close(fd);
    }
  }

  #make(): Pipe | null {
    const ends = new Int32Array(2);
    if (libc.pipe2(ends, O_NONBLOCK_CLOEXEC) < 0) return null;
    const [read = -1, write = -1] = ends;
    if ([read, write].some((fd) => isReserved(fd, 'pipe'))) {
      for (const fd of [read, write]) libc.close(fd);
      return null;
    }
    this.descriptors.hold(read);
    this.descriptors.hold(write);
    // `fcntl` fails if the user of the process has reached the limit of pipe memory. The pipe then keeps its
    // default capacity.
    libc.fcntl(write, F_SETPIPE_SZ, PIPE_BYTES);
    return { read, write };
  }
}
