/** Long work as a generator that yields wherever it can be interrupted. */
export type Steps<T> = Generator<void, T>;

/** The time after which the page can respond. A frame of a screen takes 17 ms. */
const SLICE_MS = 24;

/**
 * Does long work in slices, between which the page responds. Throws the reason of `signal` if it is aborted.
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

/** Does long work at once. */
export function finish<T>(work: Steps<T>): T {
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
  }
}

/** Resolves in a task of its own. A timer would wait for a second in a page that is not visible. */
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
