import { libc } from '#libc/libc.js';
import { isReserved } from './descriptor-reserve.js';
import type { Descriptors } from './descriptors.js';

const O_NONBLOCK_CLOEXEC = 0o2004000;
const F_SETPIPE_SZ = 1_031;
/** What a pipe holds, and so what a connection whose receiver is slow has in it at most, each way. */
export const PIPE_BYTES = 256 << 10;
/** Empty ones that are kept for the next. */
const SPARE = 16;

/** Both ends by their descriptors. */
export type Pipe = { readonly read: number; readonly write: number };

/** Pipes for what is on its way from one socket to another. */
export class PipePool {
  readonly #spare: Pipe[] = [];

  constructor(private readonly descriptors: Descriptors) {}

  /** Null where the process may have no more descriptors. */
  take(): Pipe | null {
    return this.#spare.pop() ?? this.#make();
  }

  /** Only an empty one. */
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
    // Where this user may have no more of that size, it is a smaller one.
    libc.fcntl(write, F_SETPIPE_SZ, PIPE_BYTES);
    return { read, write };
  }
}
