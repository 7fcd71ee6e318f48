import { check, libc } from '#libc/libc.js';
import type { Descriptors } from './descriptors.js';
import type { Handover } from './handover.js';
import { PipePool } from './pipe-pool.js';
import { resetSocket } from './socket-options.js';
import { type SplicedSide, SplicedWay } from './spliced-way.js';

const EPOLL_CLOEXEC = 0o2000000;
const EPOLL_CTL_ADD = 1;
const EPOLLIN = 1;
const EPOLLOUT = 4;
const EPOLLERR = 8;
const EPOLLHUP = 16;
const EPOLLET = 0x8000_0000;
/** struct epoll_event, which is packed on x86 alone. */
const EVENT_BYTES = process.arch === 'x64' ? 12 : 16;
const EVENT_DATA = EVENT_BYTES - 8;
const EVENTS = 256;
/** Of no pair. */
const BELL = 0;

type Pair = { readonly sides: readonly [SplicedSide, SplicedSide]; readonly ways: readonly [SplicedWay, SplicedWay] };

/**
 * Carries the bytes of pairs of TCP sockets to each other, by splice(2): each side's end by itself, a reset as a reset.
 * What waits for a slow receiver is in the kernel, and bounded. One for a thread, which does nothing else.
 */
export class Splicer {
  readonly #descriptors: Descriptors;
  readonly #pipes: PipePool;
  readonly #epoll: number;
  readonly #events = new Uint8Array(EVENTS * EVENT_BYTES);
  readonly #view = new DataView(this.#events.buffer);
  readonly #pairs = new Map<number, Pair>();
  readonly #busy = new Set<number>();
  #ended: number[] = [];

  constructor(handover: Handover) {
    this.#descriptors = handover.descriptors;
    this.#pipes = new PipePool(handover.descriptors);
    this.#epoll = check('make an epoll descriptor', libc.epoll_create1(EPOLL_CLOEXEC));
    this.#descriptors.hold(this.#epoll);
    this.#watch(handover.shared.bell, BELL, 0);
  }

  /** Takes two sockets that nobody else has; `id` is above 0, and of 32 bits. */
  add(id: number, one: number, other: number): void {
    const sides = [sideOf(one), sideOf(other)] as const;
    const [a, b] = sides;
    this.#pairs.set(id, { sides, ways: [new SplicedWay(a, b, this.#pipes), new SplicedWay(b, a, this.#pipes)] });
    this.#watch(one, id, 0);
    this.#watch(other, id, 1);
  }

  /** Resets both; nothing where they have ended. */
  cut(id: number): void {
    const pair = this.#pairs.get(id);
    if (pair !== undefined) this.#remove(id, pair, resetSocket);
  }

  /** Waits until there is something to do or the bell rings, does a part of it, and answers which pairs are over. */
  turn(waitMs: number): readonly number[] {
    const count = libc.epoll_wait(this.#epoll, this.#events, EVENTS, this.#busy.size > 0 ? 0 : waitMs);
    for (let event = 0; event < count; event++) this.#hear(event * EVENT_BYTES);
    for (const id of [...this.#busy]) this.#run(id);
    const ended = this.#ended;
    this.#ended = [];
    return ended;
  }

  #hear(at: number): void {
    const events = this.#view.getUint32(at, true);
    const id = this.#view.getUint32(at + EVENT_DATA, true);
    const side = this.#pairs.get(id)?.sides[this.#view.getUint32(at + EVENT_DATA + 4, true)];
    if (side === undefined) return;
    if ((events & EPOLLERR) !== 0) side.isBroken = true;
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) !== 0) side.isReadable = true;
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) !== 0) side.isWritable = true;
    this.#busy.add(id);
  }

  #run(id: number): void {
    const pair = this.#pairs.get(id);
    if (pair === undefined) {
      this.#busy.delete(id);
      return;
    }
    const states = pair.ways.map((way) => way.run());
    if (states.includes('broken')) this.#remove(id, pair, resetSocket);
    else if (states.every((state) => state === 'ended')) this.#remove(id, pair, (fd) => libc.close(fd));
    else if (!states.includes('more')) this.#busy.delete(id);
  }

  #remove(id: number, { sides, ways }: Pair, close: (fd: number) => void): void {
    this.#pairs.delete(id);
    this.#busy.delete(id);
    for (const way of ways) way.drop();
    for (const { fd } of sides) {
      this.#descriptors.release(fd);
      close(fd);
    }
    this.#ended.push(id);
  }

  #watch(fd: number, id: number, side: number): void {
    const event = new Uint8Array(EVENT_BYTES);
    const view = new DataView(event.buffer);
    // By edges: the bell need not be read, and who waits for a slow receiver is not told of what it cannot take.
    view.setUint32(0, id === BELL ? EPOLLIN | EPOLLET : EPOLLIN | EPOLLOUT | EPOLLET, true);
    view.setUint32(EVENT_DATA, id, true);
    view.setUint32(EVENT_DATA + 4, side, true);
    check('watch a descriptor', libc.epoll_ctl(this.#epoll, EPOLL_CTL_ADD, fd, event));
  }
}

/** What it is ready for the kernel tells as soon as it is watched. */
function sideOf(fd: number): SplicedSide {
  return { fd, isReadable: false, isWritable: false, isBroken: false };
}
