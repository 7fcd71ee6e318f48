import { getEnvironmentData, setEnvironmentData, type Worker } from 'node:worker_threads';

/**
 * A thread that is terminated while koffi makes a value or a function for it takes the whole process along: what koffi then asks
 * of the engine fails, as does its telling so, and it aborts. So a worker thread holds what would terminate it, by a word
 * that both share, while it loads and while it is in such calls.
 */
const FREE = 0;
const HELD = 1;
const ENDING = 2;

const ENVIRONMENT = 'weir.hold';
const LOOK_MS = 2;
/** A thread that holds for longer hangs. */
const MOST_MS = 10_000;

/** For who began a worker thread. */
export class TerminationGuard {
  readonly #word = new Int32Array(new SharedArrayBuffer(4)).fill(HELD);

  /** A thread that has this hold, until it lets go for the first time. */
  begin(make: () => Worker): Worker {
    setEnvironmentData(ENVIRONMENT, this.#word);
    try {
      return make();
    } finally {
      setEnvironmentData(ENVIRONMENT, undefined);
    }
  }

  /** The thread may be terminated once this is done, at once where it is not held. `isGone`: nobody holds any more. */
  async ended(isGone: () => boolean): Promise<void> {
    const until = performance.now() + MOST_MS;
    while (Atomics.compareExchange(this.#word, 0, FREE, ENDING) === HELD && !isGone() && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }
}

const given = getEnvironmentData(ENVIRONMENT);
const word = given instanceof Int32Array ? given : undefined;
// Threads that this one begins have their own.
if (word !== undefined) setEnvironmentData(ENVIRONMENT, undefined);
let depth = word === undefined ? 0 : 1;

/** For a worker thread that has loaded what it needs. */
export function terminationPoint(): void {
  if (word === undefined || --depth > 0) return;
  Atomics.store(word, 0, FREE);
}

/** Does what a thread must not be terminated in: calls as above, and what is to be done as a whole. */
export function guarded<T>(work: () => T): T {
  if (word === undefined) return work();
  if (depth++ === 0 && Atomics.compareExchange(word, 0, FREE, HELD) === ENDING) Atomics.wait(word, 0, ENDING);
  try {
    return work();
  } finally {
    terminationPoint();
  }
}

/** The same for work that waits: the thread is not terminated before the promise settles. */
export async function guardedUntilDone<T>(work: () => Promise<T>): Promise<T> {
  if (word === undefined) return work();
  return guarded(async () => {
    depth++;
    try {
      return await work();
    } finally {
      terminationPoint();
    }
  });
}
