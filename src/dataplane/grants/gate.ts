const LOCK = 0;
const AGE = 1;
const FREE = 0;
const OWNER = 1;
const GUEST = 2;
/** A guest is in for microseconds, unless somebody else has his CPU. */
const LOOK_AGAIN_MS = 1;
const PATIENCE_MS = 1_000;

/**
 * Who writes what two threads write. The owner gets in as soon as the guest is out; a guest gets in where nobody is, or
 * not at all, and never after he was shut out. One guest at a time.
 */
export class Gate {
  readonly #words: Int32Array;

  constructor(readonly shared = new SharedArrayBuffer(8)) {
    this.#words = new Int32Array(shared);
  }

  /** What a guest names who is let in from now on. */
  get age(): number {
    return Atomics.load(this.#words, AGE);
  }

  /** The owner's, and not from within itself. */
  hold<T>(work: () => T): T {
    if (!this.#isTaken()) throw new Error('what is granted could not be written: its other writer does not finish');
    try {
      return work();
    } finally {
      Atomics.store(this.#words, LOCK, FREE);
    }
  }

  /** A guest's. Undefined where somebody is in, or `age` is over. */
  visit<T>(age: number, work: () => T): T | undefined {
    if (Atomics.compareExchange(this.#words, LOCK, FREE, GUEST) !== FREE) return undefined;
    try {
      return this.age === age ? work() : undefined;
    } finally {
      Atomics.store(this.#words, LOCK, FREE);
    }
  }

  /** No guest who was let in so far writes any more once this returns. The owner may be dead. */
  shut(): void {
    Atomics.add(this.#words, AGE, 1);
    this.#awaitGuest();
  }

  /** The guest's thread is no more: what it was writing is as a killed process leaves it. */
  evict(): void {
    Atomics.compareExchange(this.#words, LOCK, GUEST, FREE);
  }

  #isTaken(): boolean {
    const until = performance.now() + PATIENCE_MS;
    while (Atomics.compareExchange(this.#words, LOCK, FREE, OWNER) !== FREE) {
      if (Atomics.load(this.#words, LOCK) === OWNER || performance.now() > until) return false;
      this.#awaitGuest();
    }
    return true;
  }

  #awaitGuest(): void {
    for (let waited = 0; waited < PATIENCE_MS && Atomics.load(this.#words, LOCK) === GUEST; waited += LOOK_AGAIN_MS) {
      Atomics.wait(this.#words, LOCK, GUEST, LOOK_AGAIN_MS);
    }
  }
}
