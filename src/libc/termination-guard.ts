import { getEnvironmentData, setEnvironmentData, type Worker } from 'node:worker_threads';

/**
 * If a worker thread is terminated while koffi creates a value or a function for it, the JavaScript engine
 * fails koffi's request, then fails the report of that error, and the process aborts. So the thread holds its
 * guard, a word shared with its parent, while it loads and during such calls. The parent terminates it only
 * when the guard is free.
 */
const FREE = 0;
const HELD = 1;
const ENDING = 2;

const ENVIRONMENT = 'weir.hold';
const LOOK_MS = 2;
/** A thread that holds the guard for longer is considered hung. */
const MOST_MS = 10_000;

/** The parent's side of the guard. */
export class TerminationGuard {
  readonly #word = new Int32Array(new SharedArrayBuffer(4)).fill(HELD);

  /** Starts a thread that holds the guard until its first `terminationPoint`. */
  begin(make: () => Worker): Worker {
    setEnvironmentData(ENVIRONMENT, this.#word);
    try {
      return make();
    } finally {
      setEnvironmentData(ENVIRONMENT, undefined);
    }
  }

  /**
   * Resolves when the thread may be terminated: at once if the guard is free. `isGone`: the thread has
   * already ended.
   */
  async ended(isGone: () => boolean): Promise<void> {
    const until = performance.now() + MOST_MS;
    while (Atomics.compareExchange(this.#word, 0, FREE, ENDING) === HELD && !isGone() && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }
}

const given = getEnvironmentData(ENVIRONMENT);
const word = given instanceof Int32Array ? given : undefined;
// Cleared, because threads that this one starts have guards of their own.
if (word !== undefined) setEnvironmentData(ENVIRONMENT, undefined);
let depth = word === undefined ? 0 : 1;

/** Releases the guard. A worker thread calls this when it has loaded its modules. */
export function terminationPoint(): void {
  if (word === undefined || --depth > 0) return;
  Atomics.store(word, 0, FREE);
}

/**
 * Runs work during which the thread must not be terminated: the calls described above, and work that must be
 * completed.
 */
export function guarded<T>(work: () => T): T {
  if (word === undefined) return work();
  if (depth++ === 0 && Atomics.compareExchange(word, 0, FREE, HELD) === ENDING) Atomics.wait(word, 0, ENDING);
  try {
    return work();
  } finally {
    terminationPoint();
  }
}

/** The same for asynchronous work: the thread is not terminated before the promise settles. */
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
