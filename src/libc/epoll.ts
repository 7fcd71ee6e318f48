import type { Descriptors } from './descriptors.js';
import { check, libc } from './libc.js';

const EPOLL_CLOEXEC = 0o2000000;
const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_DEL = 2;
export const EPOLLIN = 1;
export const EPOLLPRI = 2;
export const EPOLLOUT = 4;
export const EPOLLERR = 8;
export const EPOLLHUP = 16;
export const EPOLLET = 0x8000_0000;
/** The size of struct epoll_event in bytes. The struct is packed only on x86. */
const EVENT_BYTES = process.arch === 'x64' ? 12 : 16;
const EVENT_DATA = EVENT_BYTES - 8;

/** An epoll descriptor. `capacity` is the maximum number of events of one wait. */
export class Epoll {
  readonly #fd: number;
  readonly #events: Uint8Array;
  readonly #view: DataView;

  constructor(
    private readonly descriptors: Descriptors,
    private readonly capacity: number,
  ) {
    this.#events = new Uint8Array(capacity * EVENT_BYTES);
    this.#view = new DataView(this.#events.buffer);
    this.#fd = check('create an epoll descriptor', libc.epoll_create1(EPOLL_CLOEXEC));
    descriptors.hold(this.#fd);
  }

  /** Watches the descriptor `fd` for `events`. Each event has the 32-bit numbers `id` and `more`. */
  watch(fd: number, events: number, id: number, more = 0): void {
    const event = new Uint8Array(EVENT_BYTES);
    const view = new DataView(event.buffer);
    view.setUint32(0, events, true);
    view.setUint32(EVENT_DATA, id, true);
    view.setUint32(EVENT_DATA + 4, more, true);
    check('watch a descriptor', libc.epoll_ctl(this.#fd, EPOLL_CTL_ADD, fd, event));
  }

  /** Ends the watch of `fd`. Ignores an error, because a closed descriptor is not watched anyway. */
  unwatch(fd: number): void {
    libc.epoll_ctl(this.#fd, EPOLL_CTL_DEL, fd, null);
  }

  /** Waits up to `timeoutMs` milliseconds. Returns the number of events, or -1 after an error. */
  wait(timeoutMs: number): number {
    return libc.epoll_wait(this.#fd, this.#events, this.capacity, timeoutMs);
  }

  eventsAt(index: number): number {
    return this.#view.getUint32(index * EVENT_BYTES, true);
  }
  idAt(index: number): number {
    return this.#view.getUint32(index * EVENT_BYTES + EVENT_DATA, true);
  }
  moreAt(index: number): number {
    return this.#view.getUint32(index * EVENT_BYTES + EVENT_DATA + 4, true);
  }

  close(): void {
    this.descriptors.release(this.#fd);
    libc.close(this.#fd);
  }
}
