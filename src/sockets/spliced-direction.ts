import { errno, libc } from '#libc/libc.js';
import { PIPE_BYTES, type Pipe, type PipePool } from './pipe-pool.js';

const EINTR = 4;
const EAGAIN = 11;
const SPLICE_F_MOVE = 1;
const SPLICE_F_NONBLOCK = 2;
const FLAGS = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
const MSG_DONTWAIT = 0x40;
const SHUT_WR = 1;
/** Calls of one direction in a turn, so that the other pairs get their turns. */
const CALLS = 8;

/** One of two sockets, with its state since the last epoll event. */
export type SplicedSide = {
  readonly fd: number;
  isReadable: boolean;
  isWritable: boolean;
  /** Urgent data has arrived, which splice(2) does not move. */
  isUrgent: boolean;
  /** The connection was reset; data received earlier may still be read. */
  isBroken: boolean;
};
/** `waiting`: for an epoll event of a side; `more`: has more to do at once. */
export type DirectionState = 'waiting' | 'more' | 'ended' | 'broken';

/**
 * The bytes that go from one socket to the other. They pass through a pipe in the kernel, and never enter
 * this process.
 */
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

  /** The number of bytes so far. */
  get moved(): number {
    return this.#moved;
  }

  /** Whether no bytes are in the pipe. */
  get isAtRest(): boolean {
    return this.#held === 0 && !this.from.isBroken;
  }

  /** Whether the sender has ended its direction. */
  get hasEnded(): boolean {
    return this.#isEnded;
  }

  /** Moves bytes until a side blocks, or the limit of calls is reached. */
  run(): DirectionState {
    for (let call = 0; call < CALLS; call++) {
      const state = this.#held > 0 ? this.#write() : this.#read();
      if (state !== 'more') return state;
    }
    return 'more';
  }

  /** Drops the bytes in transit. */
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

  /**
   * The bytes before the urgent mark have been moved; this moves the one urgent byte, and the rest follows by
   * splice(2).
   */
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

  /** An empty direction needs no pipe. */
  #rest(): DirectionState {
    if (this.#pipe !== null) this.pipes.giveBack(this.#pipe);
    this.#pipe = null;
    return 'waiting';
  }
}
