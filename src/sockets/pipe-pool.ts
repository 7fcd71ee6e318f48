import { libc } from '#libc/libc.js';
import { isReserved } from './descriptor-reserve.js';
import type { Descriptors } from './descriptors.js';

const O_NONBLOCK_CLOEXEC = 0o2004000;
const F_SETPIPE_SZ = 1_031;
/** The capacity of a pipe, and so the limit of bytes in transit in each direction if the receiver is slow. */
export const PIPE_BYTES = 256 << 10;
/** The limit of empty pipes kept for reuse. */
const SPARE = 16;

/** The descriptors of both ends. */
export type Pipe = { readonly read: number; readonly write: number };

/** Pipes for bytes in transit from one socket to another. */
export class PipePool {
  readonly #spare: Pipe[] = [];

  constructor(private readonly descriptors: Descriptors) {}

  /** Returns null if the process may not open more descriptors. */
  take(): Pipe | null {
    return this.#spare.pop() ?? this.#make();
  }

  /** Takes back an empty pipe. */
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
    // If this fails (limit of pipe memory for this user), the pipe keeps its smaller size.
    libc.fcntl(write, F_SETPIPE_SZ, PIPE_BYTES);
    return { read, write };
  }
}
