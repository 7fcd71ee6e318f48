/** Long work as a generator that yields wherever it can be interrupted. */
export type Steps<T> = Generator<void, T>;

/**
 * The time in milliseconds after which a long computation pauses, so that the page can respond. A screen
 * frame takes 17 ms.
 */
const SLICE_MS = 24;

/**
 * Runs a long computation in short slices, so that the page responds between them. Throws the reason of
 * `signal` if it is aborted.
 */
export async function inSlices<T>(work: Steps<T>, signal?: AbortSignal): Promise<T> {
  for (let end = performance.now() + SLICE_MS; ; ) {
    const step = work.next();
    if (step.done === true) return step.value;
    if (performance.now() < end) continue;
    await nextTask();
    signal?.throwIfAborted();
    end = performance.now() + SLICE_MS;
  }
}

/** Runs a long computation without pauses. */
export function finish<T>(work: Steps<T>): T {
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
  }
}

/**
 * Resolves in a new task of the event loop. Does not use a timer, because a browser delays timers by a second
 * in a page that is not visible.
 */
function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
