import type { StoredObject } from '#contracts/kubernetes/kubernetes-source.js';

/** The minimum time in milliseconds between two writes. Changes of a busy cluster are written together. */
const BETWEEN_WRITES_MS = 250;
/** If this number of Kubernetes objects waits for the store, they are written at once. */
const MANY_OBJECTS = 500;

/**
 * Writes the objects of the Kubernetes thread to the store, `BETWEEN_WRITES_MS` or more after the last write.
 * A write repeats the objects of failed writes, so that no removal is lost. It contains the objects and the
 * versions of their watches at the same time: after a crash, the next process restores this state, and the
 * watches continue from it. The parts of a large message are written at once, because the store is complete
 * only after the last part.
 */
export class ObjectWrites {
  /** Kubernetes objects that are not stored yet, by their key. */
  readonly #unstored = new Map<string, StoredObject>();
  #timer: NodeJS.Timeout | undefined;
  /** The value of `performance.now()` at the last call of `flush` with objects to write. */
  #flushedAt = -BETWEEN_WRITES_MS;
  /**
   * Whether the last call of `add` left `MANY_OBJECTS` or more to write. The next call can then contain the
   * last part of a large message.
   */
  #wasMany = false;
  /** Resolves when the last write to the store has ended. Never rejects. */
  #writing: Promise<void> = Promise.resolve();

  /** Creates the queue. `store` writes objects to the store; `trouble` reports its failures. */
  constructor(
    private readonly store: (objects: readonly StoredObject[]) => Promise<void>,
    private readonly trouble: (message: string, failure: unknown) => void,
  ) {}

  /**
   * Resolves at once. With `MANY_OBJECTS` or more, resolves after the write, so that the caller is not faster
   * than the store.
   */
  async add(objects: readonly StoredObject[]): Promise<void> {
    for (const object of objects) this.#unstored.set(object.key, object);
    const isMany = this.#unstored.size >= MANY_OBJECTS;
    const isDue = isMany || this.#wasMany;
    this.#wasMany = isMany;
    if (isDue) {
      await this.flush();
    } else if (objects.length > 0 && this.#timer === undefined) {
      const waitMs = this.#flushedAt + BETWEEN_WRITES_MS - performance.now();
      if (waitMs <= 0) void this.flush();
      else this.#timer = setTimeout(() => void this.flush(), waitMs);
    }
  }

  /** Writes all waiting Kubernetes objects. Resolves after the attempt, and never rejects. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#unstored.size > 0) this.#flushedAt = performance.now();
    this.#writing = this.#writing.then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    if (this.#unstored.size === 0) return;
    const written = new Map(this.#unstored);
    try {
      await this.store([...written.values()]);
      for (const [key, object] of written) if (this.#unstored.get(key) === object) this.#unstored.delete(key);
    } catch (failure) {
      this.trouble('the members of selectors cannot be stored', failure);
    }
  }
}
