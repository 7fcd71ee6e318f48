import { append } from '#arrays/append.js';
import type { Descriptors } from '#libc/descriptors.js';
import { EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, Epoll } from '#libc/epoll.js';
import { libc } from '#libc/libc.js';
import type { Handover } from '#sockets/listening/handover.js';
import { isIdle } from '#sockets/listening/tcp-endpoint.js';
import { resetSocket } from '#sockets/socket-options.js';
import type { OffloadedConnection } from './offloaded-connection.js';
import type { SpliceOffloader } from './offloader.js';
import { PipePool } from './pipe-pool.js';
import { SplicedDirection, type SplicedSide } from './spliced-direction.js';

const EVENTS = 256;
/**
 * The id of the eventfd, which another thread signals, in epoll events. The ids of connections are above 0.
 */
const EVENT_FD = 0;

/**
 * The first attempt to offload a connection to the datapath begins after `OFFLOAD_AFTER_BYTES` moved bytes.
 * If data stays in transit until `OFFLOAD_TIMEOUT_MS`, the next attempt begins when `RETRY_FACTOR` times as
 * many bytes have been moved.
 */
const OFFLOAD_AFTER_BYTES = 2 << 20;
const RETRY_FACTOR = 8;
/**
 * Limits of the attempts to offload connections to the datapath.
 * - `OFFLOAD_TIMEOUT_MS`: the time that an attempt waits for data in transit, in milliseconds.
 * - `OFFLOAD_POLL_MS`: the longest wait of `poll` during an attempt, in milliseconds.
 * - `MAX_ATTEMPTS`: the maximum number of simultaneous attempts.
 */
const OFFLOAD_TIMEOUT_MS = 2_000;
const OFFLOAD_POLL_MS = 1;
const MAX_ATTEMPTS = 64;

type SplicedConnection = {
  readonly sides: readonly [SplicedSide, SplicedSide];
  readonly directions: readonly [SplicedDirection, SplicedDirection];
  /**
   * The number of forwarded bytes after which the next attempt to offload the connection to the datapath
   * begins.
   */
  offloadAfterBytes: number;
};
type Attempt = { readonly offload: OffloadedConnection; readonly from: number; readonly until: number };

/**
 * Moves bytes between the two sockets of each connection by splice(2). When one direction ends, the other
 * direction continues. When one socket is reset, the splicer resets the other socket. Data for a slow
 * receiver waits in pipes of limited size. Each splicer needs its own thread, because `poll` blocks the
 * thread.
 */
export class Splicer {
  readonly #descriptors: Descriptors;
  readonly #pipes: PipePool;
  readonly #epoll: Epoll;
  readonly #pairs = new Map<number, SplicedConnection>();
  readonly #busy = new Set<number>();
  readonly #suspended = new Set<number>();
  readonly #attempts = new Map<number, Attempt>();
  #offloader: SpliceOffloader | null = null;
  #ended: number[] = [];

  constructor(handover: Handover) {
    this.#descriptors = handover.descriptors;
    this.#pipes = new PipePool(handover.descriptors);
    this.#epoll = new Epoll(handover.descriptors, EVENTS);
    this.#watch(handover.shared.eventFd, EVENT_FD, 0);
  }

  /**
   * Calls `make` to create the offloader, which from now on offloads connections with much traffic to the
   * datapath. First resets the connections that the previous offloader has offloaded.
   */
  setOffloader(make: () => SpliceOffloader): void {
    for (const [id, { offload }] of this.#attempts) this.#giveUp(id, offload);
    if (this.#offloader !== null) this.#noteEnded(this.#offloader.close());
    this.#offloader = null;
    this.#offloader = make();
    for (const pair of this.#pairs.values()) pair.offloadAfterBytes = OFFLOAD_AFTER_BYTES;
  }

  /**
   * Finds offloaded connections that have ended; the next `poll` returns their ids. Call this about once a
   * second.
   */
  checkOffloaded(): void {
    if (this.#offloader !== null) this.#noteEnded(this.#offloader.check());
  }

  /**
   * Adds a connection, and takes ownership of its two sockets: `one` to the client, `other` to the server.
   * `id` is a 32-bit number above 0.
   */
  add(id: number, one: number, other: number): void {
    const sides = [sideOf(one), sideOf(other)] as const;
    const [a, b] = sides;
    const directions = [new SplicedDirection(a, b, this.#pipes), new SplicedDirection(b, a, this.#pipes)] as const;
    this.#pairs.set(id, { sides, directions, offloadAfterBytes: OFFLOAD_AFTER_BYTES });
    this.#watch(one, id, 0);
    this.#watch(other, id, 1);
  }

  /**
   * Suspends a spliced connection, or resumes it. A suspended connection transfers no data, and ends if one
   * of its sockets is reset.
   */
  setSuspended(id: number, suspended: boolean): void {
    if (suspended) this.#suspended.add(id);
    else this.#suspended.delete(id);
    const attempt = this.#attempts.get(id);
    if (suspended && attempt !== undefined) this.#giveUp(id, attempt.offload);
    if (this.#pairs.has(id)) this.#busy.add(id);
    else this.#offloader?.setSuspended(id, suspended);
  }

  /** Resets both sockets of the connection `id`. Has no effect if the connection has already ended. */
  cut(id: number): void {
    const pair = this.#pairs.get(id);
    this.#suspended.delete(id);
    if (pair !== undefined) this.#remove(id, pair, resetSocket);
    else this.#offloader?.cut(id);
  }

  /**
   * Waits up to `waitMs` for events of the sockets or of the eventfd, and moves a limited number of bytes.
   * Returns the ids of ended connections.
   */
  poll(waitMs: number): readonly number[] {
    const timeoutMs = this.#busy.size > 0 ? 0 : this.#attempts.size > 0 ? OFFLOAD_POLL_MS : waitMs;
    const count = this.#epoll.wait(timeoutMs);
    for (let event = 0; event < count; event++) this.#noteEvents(event);
    for (const id of [...this.#busy]) this.#run(id);
    for (const [id, attempt] of [...this.#attempts]) this.#continueAttempt(id, attempt);
    const ended = this.#ended;
    this.#ended = [];
    return ended;
  }

  #noteEvents(index: number): void {
    const events = this.#epoll.eventsAt(index);
    const id = this.#epoll.idAt(index);
    const side = this.#pairs.get(id)?.sides[this.#epoll.moreAt(index)];
    if (side === undefined) return;
    if ((events & EPOLLERR) !== 0) side.isBroken = true;
    if ((events & EPOLLPRI) !== 0) side.isUrgent = true;
    if ((events & (EPOLLIN | EPOLLPRI | EPOLLERR | EPOLLHUP)) !== 0) side.isReadable = true;
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) !== 0) side.isWritable = true;
    this.#busy.add(id);
  }

  #run(id: number): void {
    const pair = this.#pairs.get(id);
    if (pair === undefined) {
      this.#busy.delete(id);
      return;
    }
    if (this.#suspended.has(id)) {
      this.#busy.delete(id);
      if (pair.sides.some(({ isBroken }) => isBroken)) this.#remove(id, pair, resetSocket);
      return;
    }
    const states = pair.directions.map((direction) => direction.run());
    if (states.includes('broken')) this.#remove(id, pair, resetSocket);
    else if (states.every((state) => state === 'ended')) this.#remove(id, pair, (fd) => libc.close(fd));
    else if (!states.includes('more')) this.#busy.delete(id);
    const [there, back] = pair.directions;
    if (there.moved + back.moved >= pair.offloadAfterBytes) this.#beginAttempt(id, pair);
  }

  #beginAttempt(id: number, pair: SplicedConnection): void {
    if (this.#offloader === null || !this.#pairs.has(id) || this.#attempts.size >= MAX_ATTEMPTS) return;
    pair.offloadAfterBytes = Number.POSITIVE_INFINITY;
    if (pair.directions.some(({ hasEnded }) => hasEnded)) return;
    const offload = this.#offloader.begin(id, socketsOf(pair));
    if (offload === null) return;
    const now = performance.now();
    this.#attempts.set(id, {
      offload,
      from: now + offload.roundTripMs + OFFLOAD_POLL_MS,
      until: now + OFFLOAD_TIMEOUT_MS,
    });
  }

  #continueAttempt(id: number, { offload, from, until }: Attempt): void {
    const pair = this.#pairs.get(id);
    if (pair === undefined) {
      this.#attempts.delete(id);
      offload.forget();
      return;
    }
    const [there, back] = pair.directions;
    const now = performance.now();
    if (there.hasEnded || back.hasEnded) {
      // One direction has ended. End the offload attempt, because its zero window delays the data of the
      // other direction.
      this.#giveUp(id, offload);
    } else if (now > from && this.#isAtRest(id, pair) && this.#offload(id, pair, offload)) {
      return;
    } else if (now > until) {
      this.#giveUp(id, offload);
      pair.offloadAfterBytes = (there.moved + back.moved) * RETRY_FACTOR;
    }
  }

  #isAtRest(id: number, { directions, sides }: SplicedConnection): boolean {
    return !this.#busy.has(id) && directions.every(({ isAtRest }) => isAtRest) && sides.every(({ fd }) => isIdle(fd));
  }

  #giveUp(id: number, offload: OffloadedConnection): void {
    this.#attempts.delete(id);
    offload.giveUp();
  }

  /**
   * Hands the connection over to the datapath. Returns false if the datapath does not accept the connection
   * yet.
   */
  #offload(id: number, pair: SplicedConnection, offload: OffloadedConnection): boolean {
    // Remove the descriptors from the record before `tryNow` closes them. After the close, the kernel may
    // give the same number to another owner immediately.
    for (const { fd } of pair.sides) this.#descriptors.release(fd);
    if (!offload.tryNow(socketsOf(pair))) {
      for (const { fd } of pair.sides) this.#descriptors.hold(fd);
      return false;
    }
    this.#attempts.delete(id);
    this.#pairs.delete(id);
    this.#busy.delete(id);
    for (const direction of pair.directions) direction.drop();
    this.#offloader?.add(id, offload);
    return true;
  }

  #remove(id: number, { sides, directions }: SplicedConnection, close: (fd: number) => void): void {
    this.#pairs.delete(id);
    this.#busy.delete(id);
    for (const direction of directions) direction.drop();
    for (const { fd } of sides) {
      this.#descriptors.release(fd);
      close(fd);
    }
    this.#noteEnded([id]);
  }

  #noteEnded(ids: readonly number[]): void {
    append(this.#ended, ids);
    for (const id of ids) this.#suspended.delete(id);
  }

  #watch(fd: number, id: number, side: number): void {
    // Edge-triggered: the splicer need not read the eventfd, and epoll does not repeat the event of a
    // connection with a slow receiver.
    const events = id === EVENT_FD ? EPOLLIN | EPOLLET : EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLET;
    this.#epoll.watch(fd, events, id, side);
  }
}

function socketsOf({ sides: [client, server] }: SplicedConnection): {
  readonly client: number;
  readonly server: number;
} {
  return { client: client.fd, server: server.fd };
}

/**
 * All flags are false at first, because epoll reports the initial readiness of a socket as soon as it
 * watches the socket.
 */
function sideOf(fd: number): SplicedSide {
  return { fd, isReadable: false, isWritable: false, isUrgent: false, isBroken: false };
}
