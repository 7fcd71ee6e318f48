/** The states of the last message to the main thread with members (addresses that Kubernetes objects own). */
const APPLIED = 0;
const PENDING = 1;
/** The last message is not applied yet, and the Kubernetes thread waits for `members_applied`. */
const AWAITED = 2;

/**
 * Shows the Kubernetes thread whether the main thread has applied its last message, through shared memory.
 * The main thread sends `members_applied` only if the Kubernetes thread waits for it. Otherwise each change
 * of a pod would wake up the Kubernetes thread once more.
 */
export class Acknowledgement {
  readonly #state: Int32Array;

  constructor(readonly shared = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)) {
    this.#state = new Int32Array(shared);
  }

  /**
   * The Kubernetes thread must call this method before it sends a message with members (addresses of pods and
   * nodes).
   */
  expect(): void {
    Atomics.store(this.#state, 0, PENDING);
  }

  /** Returns whether the last message is applied. If not, the next call of `give` returns true. */
  isGiven(): boolean {
    return Atomics.compareExchange(this.#state, 0, PENDING, AWAITED) === APPLIED;
  }

  /** Marks the last message as applied. Returns whether the main thread must send `members_applied`. */
  give(): boolean {
    return Atomics.exchange(this.#state, 0, APPLIED) === AWAITED;
  }
}
