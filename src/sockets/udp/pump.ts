import { Descriptors } from '#libc/descriptors.js';
import { EPOLLIN, Epoll } from '#libc/epoll.js';
import { eventLoopDescriptor } from '#sockets/event-loop.js';
import { BatchMemory } from './batch-memory.js';

const EVENTS = 64;
/**
 * After epoll reports work of Node's event loop, the pump makes this many iterations without a wait. In this
 * time the event loop starts to watch the descriptors that its handlers have opened.
 */
const LOOP_ITERATIONS = 2;
/**
 * The longest wait of one pump iteration, in milliseconds. The wait can delay a JavaScript timer by this
 * time.
 */
const WAIT_MS = 20;
/**
 * The longest wait of one pump iteration, in milliseconds, if `eventLoopDescriptor` failed. During such a
 * wait, the pump does not notice new work of the event loop.
 */
const BLIND_WAIT_MS = 1;

/** A component that sends queued datagrams or messages at the end of a pump iteration. */
export type Sender = {
  /** Sends the queued datagrams or messages, and returns the number of lost datagrams. */
  flush(memory: BatchMemory): number;
};

/** A socket from which the pump receives datagrams or messages, for example a `UdpPort`. */
type Port = {
  readonly fd: number;
  /** The pump calls this function when epoll reports that the socket is readable. */
  receive(memory: BatchMemory): void;
  close(): void;
};

/**
 * Receives and sends the datagrams of all sockets that were added. The pump and Node's event loop run
 * alternately on one thread. If neither has work, the thread waits for both in one `epoll_wait`. Use one pump
 * for each thread: during the wait of one pump, a second pump could not run.
 */
export class Pump {
  readonly #memory = new BatchMemory();
  readonly #ports = new Map<number, Port>();
  readonly #epoll: Epoll;
  #dirty: Sender[] = [];
  /**
   * The number of iterations and flushes so far. A change of this number shows that a new batch of datagrams
   * has begun.
   */
  iterations = 0;
  #isIterating = false;
  #loop = -1;
  #loopIterations = 0;
  /**
   * The longest wait of one pump iteration, in milliseconds; 0 until the search for the event loop's
   * descriptor has ended.
   */
  #waitLimitMs = 0;
  #isClosed = false;
  readonly #nextIteration = (): void => this.#iterate();
  readonly #nextFlush = (): void => this.#flush();

  constructor(
    private readonly onLost: (datagrams: number) => void,
    private readonly descriptors = new Descriptors(),
    private readonly waitMs = WAIT_MS,
  ) {
    this.#epoll = new Epoll(descriptors, EVENTS);
    void this.#watchLoop();
    setImmediate(this.#nextIteration);
  }

  /**
   * Adds the descriptor of `port` (a socket, not a TCP port) to the epoll set, and calls `receive` whenever
   * the socket is readable. Throws if the kernel refuses to add the descriptor.
   */
  add(port: Port): void {
    this.#epoll.watch(port.fd, EPOLLIN, port.fd);
    this.#ports.set(port.fd, port);
    this.descriptors.hold(port.fd);
  }

  remove(port: Pick<Port, 'fd'>): void {
    this.#ports.delete(port.fd);
    this.descriptors.release(port.fd);
    this.#epoll.unwatch(port.fd);
  }

  /**
   * Makes the pump call `flush` of `sender` once, at the end of the current pump iteration. Outside of a pump
   * iteration, the call is at the end of the current iteration of the event loop. Do not call this function
   * twice before the same flush.
   */
  hasToSend(sender: Sender): void {
    if (this.#dirty.length === 0 && !this.#isIterating) setImmediate(this.#nextFlush);
    this.#dirty.push(sender);
  }

  close(): void {
    for (const port of this.#ports.values()) port.close();
    // The next pump iteration closes the epoll descriptor and unmaps the buffers, exactly once. A second
    // close or unmap could affect a descriptor or memory that already has a new owner.
    this.#isClosed = true;
  }

  #iterate(): void {
    if (this.#isClosed) {
      this.#end();
      return;
    }
    this.iterations++;
    this.#isIterating = true;
    const isQuiet = this.#loopIterations === 0 && this.#dirty.length === 0;
    const ready = this.#epoll.wait(isQuiet ? this.#waitLimitMs : 0);
    if (this.#loopIterations > 0) this.#loopIterations--;
    for (let event = 0; event < ready; event++) {
      const fd = this.#epoll.idAt(event);
      if (fd === this.#loop) this.#loopIterations = LOOP_ITERATIONS;
      else this.#ports.get(fd)?.receive(this.#memory);
    }
    this.#isIterating = false;
    if (this.#dirty.length > 0) this.#flush();
    setImmediate(this.#nextIteration);
  }

  #flush(): void {
    this.iterations++;
    const dirty = this.#dirty;
    this.#dirty = [];
    let lost = 0;
    for (const sender of dirty) lost += sender.flush(this.#memory);
    if (lost > 0) this.onLost(lost);
  }

  async #watchLoop(): Promise<void> {
    const loop = await eventLoopDescriptor().catch(() => -1);
    if (this.#isClosed) return;
    if (loop >= 0) this.#epoll.watch(loop, EPOLLIN, loop);
    this.#loop = loop;
    this.#waitLimitMs = loop >= 0 ? this.waitMs : BLIND_WAIT_MS;
  }

  #end(): void {
    this.#epoll.close();
    this.#memory.free();
  }
}
