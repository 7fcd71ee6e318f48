import { getEnvironmentData, setEnvironmentData, type Worker } from 'node:worker_threads';

/**
 * The states of a termination guard, a 32-bit number that a worker thread shares with its parent thread. If
 * the parent terminates a worker thread while koffi creates a JavaScript value, V8 aborts the whole process.
 * So the worker thread holds its guard while it loads its modules and during such koffi calls. The parent
 * terminates the thread only when the guard is free.
 */
const FREE = 0;
const HELD = 1;
const ENDING = 2;

const ENVIRONMENT = 'weir.hold';
const LOOK_MS = 2;
/**
 * The maximum time in milliseconds for which the parent waits for the guard. After this time the parent
 * terminates the thread, because the thread is considered hung.
 */
const MAX_MS = 10_000;

/** The termination guard of one worker thread, as its parent thread uses it. */
export class TerminationGuard {
  readonly #word = new Int32Array(new SharedArrayBuffer(4)).fill(HELD);

  /**
   * Calls `make`, which must start the worker thread. The thread holds the guard until its first call of
   * `terminationPoint`.
   */
  begin(make: () => Worker): Worker {
    setEnvironmentData(ENVIRONMENT, this.#word);
    try {
      return make();
    } finally {
      setEnvironmentData(ENVIRONMENT, undefined);
    }
  }

  /**
   * Resolves when the parent may terminate the thread: immediately if the guard is free, and after `MAX_MS`
   * milliseconds at the latest. `isGone` returns whether the thread has already ended.
   */
  async ended(isGone: () => boolean): Promise<void> {
    const until = performance.now() + MAX_MS;
    while (Atomics.compareExchange(this.#word, 0, FREE, ENDING) === HELD && !isGone() && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }
}

const given = getEnvironmentData(ENVIRONMENT);
const word = given instanceof Int32Array ? given : undefined;
// Clear the environment data: worker threads of this thread must not inherit its guard, because each thread
// has its own guard.
if (word !== undefined) setEnvironmentData(ENVIRONMENT, undefined);
let depth = word === undefined ? 0 : 1;

/** Releases the termination guard. A worker thread calls this function after it has loaded its modules. */
export function terminationPoint(): void {
  if (word === undefined || --depth > 0) return;
  Atomics.store(word, 0, FREE);
}

/**
 * Runs work during which the parent must not terminate this thread: koffi calls that create JavaScript
 * values, and work that must be completed.
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

/** Runs asynchronous work. The parent does not terminate the thread before the promise settles. */
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
