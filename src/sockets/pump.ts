import { BatchMemory } from './batch-memory.js';
import { Descriptors } from './descriptors.js';
import { check, libc, SocketFailure } from './libc.js';
import type { UdpPort } from './udp-port.js';

const POLL_BYTES = 8;
const POLLIN = 1;
const EFD_NONBLOCK_CLOEXEC = 0o2004000;
/** Turns without anything to do before it waits: a thread that waits takes longer to be woken than a turn. */
const EMPTY_TURNS = 8;
/** A wait ends by itself, so that no thread is held for long that has nothing to wait for. */
const WAIT_MS = 500;

/**
 * Moves the datagrams of all its ports: turn by turn while there are some, and in between it waits for them in a thread
 * of Node's pool.
 */
export class Pump {
  readonly #memory = new BatchMemory();
  readonly #ports = new Map<number, UdpPort>();
  readonly #wakes: number;
  #descriptors = new Uint8Array(0);
  #polled: readonly UdpPort[] = [];
  #dirty: UdpPort[] = [];
  /** Counts up by one with each turn, and with each flush between two. */
  turns = 0;
  #emptyTurns = 0;
  #isInTurn = false;
  #isWaiting = false;
  #isChanged = true;
  #isClosed = false;
  readonly #nextTurn = (): void => this.#turn();
  readonly #nextFlush = (): void => this.#flush();

  constructor(
    private readonly onLost: (datagrams: number) => void,
    private readonly descriptors = new Descriptors(),
  ) {
    this.#wakes = check(libc.eventfd(0, EFD_NONBLOCK_CLOEXEC), 'make an event');
    descriptors.hold(this.#wakes);
    setImmediate(this.#nextTurn);
  }

  add(port: UdpPort): void {
    this.#ports.set(port.fd, port);
    this.descriptors.hold(port.fd);
    this.#change();
  }

  remove(port: UdpPort): void {
    this.#ports.delete(port.fd);
    this.descriptors.release(port.fd);
    this.#change();
  }

  /** The port is flushed at the end of this turn, or of this one of the event loop. */
  hasToSend(port: UdpPort): void {
    if (this.#dirty.length === 0 && !this.#isInTurn) setImmediate(this.#nextFlush);
    this.#dirty.push(port);
  }

  close(): void {
    for (const port of this.#ports.values()) port.close();
    this.#isClosed = true;
    // The next turn ends it, once and for all: what is closed or unmapped twice may be somebody else's by then.
    if (this.#isWaiting) this.#wake();
  }

  #turn(): void {
    if (this.#isClosed) {
      this.#end();
      return;
    }
    this.#isInTurn = true;
    this.turns++;
    this.#arrange();
    const ready = libc.poll(this.#descriptors, this.#polled.length + 1, 0);
    if (ready > 0) this.#receive();
    this.#isInTurn = false;
    if (this.#dirty.length > 0) this.#flush();
    this.#emptyTurns = ready > 0 ? 0 : this.#emptyTurns + 1;
    if (this.#emptyTurns < EMPTY_TURNS) setImmediate(this.#nextTurn);
    else this.#wait();
  }

  #receive(): void {
    const events = new DataView(this.#descriptors.buffer);
    for (const [index, port] of this.#polled.entries()) {
      if (events.getInt16(index * POLL_BYTES + 6, true) !== 0) port.receive(this.#memory);
    }
    if (events.getInt16(this.#polled.length * POLL_BYTES + 6, true) !== 0) libc.read(this.#wakes, new Uint8Array(8), 8);
  }

  #flush(): void {
    this.turns++;
    const dirty = this.#dirty;
    this.#dirty = [];
    let lost = 0;
    for (const port of dirty) lost += port.flush(this.#memory);
    if (lost > 0) this.onLost(lost);
  }

  #wait(): void {
    this.#isWaiting = true;
    this.#emptyTurns = 0;
    // A thread writes to what is handed over, and nobody else keeps it from being collected: it must stay this one's.
    libc.poll.async(this.#descriptors, this.#polled.length + 1, WAIT_MS, (failure) => {
      this.#isWaiting = false;
      if (failure !== null) throw new SocketFailure('wait for datagrams', failure.message);
      this.#turn();
    });
  }

  /** What is polled is what there is now. */
  #arrange(): void {
    if (!this.#isChanged) return;
    this.#isChanged = false;
    this.#polled = [...this.#ports.values()];
    this.#descriptors = new Uint8Array((this.#polled.length + 1) * POLL_BYTES);
    const view = new DataView(this.#descriptors.buffer);
    for (const [index, fd] of [...this.#polled.map((port) => port.fd), this.#wakes].entries()) {
      view.setInt32(index * POLL_BYTES, fd, true);
      view.setInt16(index * POLL_BYTES + 4, POLLIN, true);
    }
  }

  #change(): void {
    this.#isChanged = true;
    if (this.#isWaiting) this.#wake();
  }

  #wake(): void {
    const one = new Uint8Array(8);
    one[0] = 1;
    libc.write(this.#wakes, one, 8);
  }

  #end(): void {
    this.descriptors.release(this.#wakes);
    libc.close(this.#wakes);
    this.#memory.free();
  }
}
