import type { StoredObject } from '#contracts/kubernetes-source.js';

/** The least time between two writes, in milliseconds. Changes of a busy cluster are written together. */
const BETWEEN_WRITES_MS = 250;
/** With this number of objects, a write does not wait. */
const MANY_OBJECTS = 500;

/**
 * Writes the objects of the Kubernetes thread to the store: at once, or BETWEEN_WRITES_MS after the last
 * write. A write includes the objects of failed writes: a removal must not be lost. It has the objects of one
 * moment, and the versions of their watches of the same moment. So a process that ends before its last write
 * restores an earlier state, and the watches go on from there. The parts of a large message are written at
 * once: the store is not complete before the last part.
 */
export class ObjectWrites {
  /** Objects that the store does not have yet, by their key. */
  readonly #unstored = new Map<string, StoredObject>();
  #timer: NodeJS.Timeout | undefined;
  /** When `flush` last had objects to write, on the clock of `performance.now`. */
  #flushedAt = -BETWEEN_WRITES_MS;
  /** Whether the last call of `add` had many objects, so that the next one can have the last part of them. */
  #wasMany = false;
  /** Never rejects. */
  #writing: Promise<void> = Promise.resolve();

  /** `trouble` reports a failure of `store`. */
  constructor(
    private readonly store: (objects: readonly StoredObject[]) => Promise<void>,
    private readonly trouble: (message: string, failure: unknown) => void,
  ) {}

  /**
   * Resolves at once; with many objects, after their write, so that the caller is not faster than the store.
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

  /** Resolves after an attempt to write all objects. Never rejects. */
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
