import { check, libc } from '#libc/libc.js';
import { BatchMemory } from './batch-memory.js';
import { Descriptors } from './descriptors.js';
import { eventLoopDescriptor } from './event-loop.js';

const EPOLL_CLOEXEC = 0o2000000;
const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_DEL = 2;
const EPOLLIN = 1;
/** struct epoll_event, which is packed on x86 alone. */
const EVENT_BYTES = process.arch === 'x64' ? 12 : 16;
const EVENT_DATA = EVENT_BYTES - 8;
const EVENTS = 64;
/** What the event loop's handlers began is watched by it after so many turns of its own: until then nobody waits. */
const TURNS_OF_THE_LOOP = 2;
/** No timer is late by more. */
const WAIT_MS = 20;
/** Where nobody can say what the event loop waits for. */
const BLIND_WAIT_MS = 1;

/** Who has something to be done at the end of a turn. */
export type Sender = {
  /** Answers how many datagrams were lost. */
  flush(memory: BatchMemory): number;
};

/** A socket that the pump watches, such as a `UdpPort`. */
type Port = {
  readonly fd: number;
  /** Called when the socket has something to read. */
  receive(memory: BatchMemory): void;
  close(): void;
};

/**
 * Moves the datagrams of all its ports. Between turns the event loop has its own; where neither has anything to do, the
 * thread waits for both at once. One for a thread: two would wait for each other.
 */
export class Pump {
  readonly #memory = new BatchMemory();
  readonly #ports = new Map<number, Port>();
  readonly #epoll: number;
  readonly #events = new Uint8Array(EVENTS * EVENT_BYTES);
  readonly #eventView = new DataView(this.#events.buffer);
  #dirty: Sender[] = [];
  /** Counts up by one with each turn, and with each flush between two. */
  turns = 0;
  #isInTurn = false;
  #loop = -1;
  #turnsOfLoop = 0;
  /** How long a wait may be; 0 until it is known what the loop waits for. */
  #patienceMs = 0;
  #isClosed = false;
  readonly #nextTurn = (): void => this.#turn();
  readonly #nextFlush = (): void => this.#flush();

  constructor(
    private readonly onLost: (datagrams: number) => void,
    private readonly descriptors = new Descriptors(),
    private readonly waitMs = WAIT_MS,
  ) {
    this.#epoll = check('make an epoll descriptor', libc.epoll_create1(EPOLL_CLOEXEC));
    descriptors.hold(this.#epoll);
    void this.#watchLoop();
    setImmediate(this.#nextTurn);
  }

  /** Throws where the kernel watches no more. */
  add(port: Port): void {
    this.#watch(port.fd);
    this.#ports.set(port.fd, port);
    this.descriptors.hold(port.fd);
  }

  remove(port: Pick<Port, 'fd'>): void {
    this.#ports.delete(port.fd);
    this.descriptors.release(port.fd);
    libc.epoll_ctl(this.#epoll, EPOLL_CTL_DEL, port.fd, null);
  }

  /** Is flushed at the end of this turn, or of this one of the event loop; to be said once for each time. */
  hasToSend(sender: Sender): void {
    if (this.#dirty.length === 0 && !this.#isInTurn) setImmediate(this.#nextFlush);
    this.#dirty.push(sender);
  }

  close(): void {
    for (const port of this.#ports.values()) port.close();
    // The next turn ends it, once and for all: what is closed or unmapped twice may be somebody else's by then.
    this.#isClosed = true;
  }

  #turn(): void {
    if (this.#isClosed) {
      this.#end();
      return;
    }
    this.turns++;
    this.#isInTurn = true;
    const isQuiet = this.#turnsOfLoop === 0 && this.#dirty.length === 0;
    const ready = libc.epoll_wait(this.#epoll, this.#events, EVENTS, isQuiet ? this.#patienceMs : 0);
    if (this.#turnsOfLoop > 0) this.#turnsOfLoop--;
    for (let event = 0; event < ready; event++) {
      const fd = this.#eventView.getInt32(event * EVENT_BYTES + EVENT_DATA, true);
      if (fd === this.#loop) this.#turnsOfLoop = TURNS_OF_THE_LOOP;
      else this.#ports.get(fd)?.receive(this.#memory);
    }
    this.#isInTurn = false;
    if (this.#dirty.length > 0) this.#flush();
    setImmediate(this.#nextTurn);
  }

  #flush(): void {
    this.turns++;
    const dirty = this.#dirty;
    this.#dirty = [];
    let lost = 0;
    for (const sender of dirty) lost += sender.flush(this.#memory);
    if (lost > 0) this.onLost(lost);
  }

  async #watchLoop(): Promise<void> {
    const loop = await eventLoopDescriptor().catch(() => -1);
    if (this.#isClosed) return;
    if (loop >= 0) this.#watch(loop);
    this.#loop = loop;
    this.#patienceMs = loop >= 0 ? this.waitMs : BLIND_WAIT_MS;
  }

  #watch(fd: number): void {
    const event = new Uint8Array(EVENT_BYTES);
    const view = new DataView(event.buffer);
    view.setUint32(0, EPOLLIN, true);
    view.setInt32(EVENT_DATA, fd, true);
    check('watch a descriptor', libc.epoll_ctl(this.#epoll, EPOLL_CTL_ADD, fd, event));
  }

  #end(): void {
    this.descriptors.release(this.#epoll);
    libc.close(this.#epoll);
    this.#memory.free();
  }
}
