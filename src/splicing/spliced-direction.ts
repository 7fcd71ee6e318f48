import { constants } from 'node:os';
import { errno, libc } from '#libc/libc.js';
import { MSG_DONTWAIT } from '#libc/socket-numbers.js';
import { PIPE_BYTES, type Pipe, type PipePool } from './pipe-pool.js';

const { EAGAIN, EINTR } = constants.errno;
const SPLICE_F_MOVE = 1;
const SPLICE_F_NONBLOCK = 2;
const FLAGS = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
const SHUT_WR = 1;
/**
 * The maximum number of system calls for one direction in one iteration of the splicer. After that, the other
 * connections get their share of the thread.
 */
const CALLS = 8;

/** One of the two sockets of a spliced connection, with the readiness that epoll reported last. */
export type SplicedSide = {
  readonly fd: number;
  isReadable: boolean;
  isWritable: boolean;
  /** Urgent data has arrived. splice(2) does not move urgent data. */
  isUrgent: boolean;
  /**
   * epoll has reported an error, such as a reset of the connection. Data that arrived before may still be
   * readable.
   */
  isBroken: boolean;
};
/**
 * `waiting`: the direction can continue after an epoll event of a socket. `more`: the direction can continue
 * immediately.
 */
export type DirectionState = 'waiting' | 'more' | 'ended' | 'broken';

/**
 * Moves the bytes of one direction, from one socket to the other. The bytes pass through a pipe in the
 * kernel. This process copies only urgent data into its own memory.
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

  /** The number of bytes that this object has read from the socket `from`. */
  get moved(): number {
    return this.#moved;
  }

  /** True if the pipe contains no bytes, and epoll has reported no error of the socket `from`. */
  get isAtRest(): boolean {
    return this.#held === 0 && !this.from.isBroken;
  }

  /** True if the sender has closed its direction (FIN). */
  get hasEnded(): boolean {
    return this.#isEnded;
  }

  /**
   * Moves bytes until a socket blocks, the direction ends, or the limit of system calls (`CALLS`) is reached.
   */
  run(): DirectionState {
    for (let call = 0; call < CALLS; call++) {
      const state = this.#held > 0 ? this.#write() : this.#read();
      if (state !== 'more') return state;
    }
    return 'more';
  }

  /** Closes the pipe. The bytes in the pipe are lost. */
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
   * Moves the single urgent byte by recv(2) and write(2). splice(2) has moved all bytes before the urgent
   * byte, and moves the bytes after it later.
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

  /** Returns the pipe to the pool, because a direction without bytes in transit needs no pipe. */
  #rest(): DirectionState {
    if (this.#pipe !== null) this.pipes.giveBack(this.#pipe);
    this.#pipe = null;
    return 'waiting';
  }
}
