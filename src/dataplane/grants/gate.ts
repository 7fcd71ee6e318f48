const LOCK = 0;
const FREE = 0;
const OWNER = 1;
const GUEST = 2;
/** What a guest does takes less, as a rule: nobody need be woken for it. */
const SPIN_MS = 0.02;
const LOOK_AGAIN_MS = 1;
/** They take no less than five seconds. */
const LOOKS = 5_000;

/**
 * Who writes what two threads write. The owner gets in as soon as the guest is out; a guest gets in where nobody is, or
 * not at all. One guest at a time.
 */
export class Gate {
  readonly #words: Int32Array;

  /** `onStuck` is called where a guest does not come out: what the owner was about to do is done by halves then. */
  constructor(
    readonly shared = new SharedArrayBuffer(4),
    private readonly onStuck: (failure: Error) => void = () => {},
  ) {
    this.#words = new Int32Array(shared);
  }

  /** The owner's, and not from within itself. */
  hold<T>(work: () => T): T {
    this.#enter();
    try {
      return work();
    } finally {
      Atomics.store(this.#words, LOCK, FREE);
    }
  }

  /** A guest's; no longer than a millisecond. Undefined where somebody is in. */
  visit<T>(work: () => T): T | undefined {
    if (Atomics.compareExchange(this.#words, LOCK, FREE, GUEST) !== FREE) return undefined;
    try {
      return work();
    } finally {
      Atomics.store(this.#words, LOCK, FREE);
    }
  }

  /** The owner's thread is no more: what it was writing is as a killed process leaves it. */
  ownerEnded(): void {
    Atomics.compareExchange(this.#words, LOCK, OWNER, FREE);
  }

  /** As `ownerEnded`. */
  guestEnded(): void {
    Atomics.compareExchange(this.#words, LOCK, GUEST, FREE);
  }

  #enter(): void {
    const spinning = performance.now() + SPIN_MS;
    for (let looks = 0; looks < LOOKS; ) {
      const found = Atomics.compareExchange(this.#words, LOCK, FREE, OWNER);
      if (found === FREE) return;
      if (found === OWNER) throw new Error('the gate of grants was held by its owner, who came again');
      if (performance.now() < spinning) continue;
      Atomics.wait(this.#words, LOCK, GUEST, LOOK_AGAIN_MS);
      looks++;
    }
    const failure = new Error('the other writer of grants does not finish');
    this.onStuck(failure);
    throw failure;
  }
}
