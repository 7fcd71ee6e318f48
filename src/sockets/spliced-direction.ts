import { errno, libc } from '#libc/libc.js';
import { PIPE_BYTES, type Pipe, type PipePool } from './pipe-pool.js';

const EINTR = 4;
const EAGAIN = 11;
const SPLICE_F_MOVE = 1;
const SPLICE_F_NONBLOCK = 2;
const FLAGS = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
const MSG_DONTWAIT = 0x40;
const SHUT_WR = 1;
/** Calls of one way in a turn, so that the others get theirs. */
const CALLS = 8;

/** One of two sockets, and what is known of it since the kernel last told. */
export type SplicedSide = {
  readonly fd: number;
  isReadable: boolean;
  isWritable: boolean;
  /** Urgent data is there, which the kernel splices to nobody. */
  isUrgent: boolean;
  /** It was reset; what came before that may still be read. */
  isBroken: boolean;
};
/** `waiting` for the kernel to tell of a side; `more`: it has more to do at once. */
export type DirectionState = 'waiting' | 'more' | 'ended' | 'broken';

/** The bytes that go from one socket to another. They go through a pipe, in the kernel, and are never seen here. */
export class SplicedDirection {
  #pipe: Pipe | null = null;
  #held = 0;
  #isEnded = false;
  #moved = 0;

  constructor(
    private readonly from: SplicedSide,
    private readonly to: SplicedSide,
    private readonly pipes: PipePool,
  ) {}

  /** Bytes, so far. */
  get moved(): number {
    return this.#moved;
  }

  /** Whether nothing is in it. */
  get isAtRest(): boolean {
    return this.#held === 0 && !this.from.isBroken;
  }

  /** Whether nothing more comes. */
  get hasEnded(): boolean {
    return this.#isEnded;
  }

  /** Moves what there is, as long as both sides let it. */
  run(): DirectionState {
    for (let call = 0; call < CALLS; call++) {
      const state = this.#held > 0 ? this.#write() : this.#read();
      if (state !== 'more') return state;
    }
    return 'more';
  }

  /** Lets go of what is on its way. */
  drop(): void {
    if (this.#pipe !== null) this.pipes.close(this.#pipe);
    this.#pipe = null;
    this.#held = 0;
  }

  #read(): DirectionState {
    if (this.#isEnded) return this.from.isBroken ? 'broken' : 'ended';
    if (!this.from.isReadable) return this.#rest();
    this.#pipe ??= this.pipes.take();
    if (this.#pipe === null) return 'broken';
    const moved = libc.splice(this.from.fd, 0, this.#pipe.write, 0, PIPE_BYTES, FLAGS);
    if (moved > 0) {
      this.#held = moved;
      this.#moved += moved;
      return 'more';
    }
    if (moved === 0) return this.#end();
    const error = errno();
    if (error === EINTR) return 'more';
    if (error !== EAGAIN) return 'broken';
    if (this.from.isUrgent) return this.#readUrgent(this.#pipe);
    this.from.isReadable = false;
    return this.#rest();
  }

  /** What was before the mark has gone; what is behind it is as usual. */
  #readUrgent(pipe: Pipe): DirectionState {
    const byte = new Uint8Array(1);
    this.from.isUrgent = false;
    if (libc.recv(this.from.fd, byte, 1, MSG_DONTWAIT) !== 1) return 'more';
    if (libc.write(pipe.write, byte, 1) !== 1) return 'broken';
    this.#held = 1;
    this.#moved++;
    return 'more';
  }

  #write(): DirectionState {
    if (!this.to.isWritable) return 'waiting';
    const moved = libc.splice((this.#pipe as Pipe).read, 0, this.to.fd, 0, this.#held, FLAGS);
    if (moved >= 0) {
      this.#held -= moved;
      return 'more';
    }
    const error = errno();
    if (error === EINTR) return 'more';
    if (error !== EAGAIN) return 'broken';
    this.to.isWritable = false;
    return 'waiting';
  }

  #end(): DirectionState {
    this.#rest();
    this.#isEnded = true;
    libc.shutdown(this.to.fd, SHUT_WR);
    return this.from.isBroken ? 'broken' : 'ended';
  }

  /** A way that has nothing in it needs no pipe. */
  #rest(): DirectionState {
    if (this.#pipe !== null) this.pipes.giveBack(this.#pipe);
    this.#pipe = null;
    return 'waiting';
  }
}
