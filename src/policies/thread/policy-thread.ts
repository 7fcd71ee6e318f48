import { addListener } from '#contracts/listeners.js';
import type { SupervisedPart } from '#contracts/supervised-part.js';
import type { SentFailure } from '#threads/thread-messages.js';
import { WorkerClient } from '#threads/worker-client.js';
import { ownBuffers } from './own-buffers.js';
import type { PolicyResult, PolicyThreadRequests, PolicyWork } from './policy-work.js';

/**
 * A thread that parses, compiles and explains policies, so that the main thread is not blocked. Listeners of
 * `watch` receive a failure if the thread dies, but not if `close` or an abort ends the thread.
 */
export type PolicyThread = SupervisedPart & {
  /**
   * Executes a task in the thread. Rejects with `PolicyThreadFailed` if the thread dies during the task; the
   * next task starts a new thread. With `transfer`, the large buffers of the task move to the thread, and the
   * caller can no longer use them. `signal` aborts the task by terminating the thread, because a compilation
   * cannot be stopped otherwise.
   */
  perform<W extends PolicyWork>(
    work: W,
    options?: { transfer?: boolean; signal?: AbortSignal },
  ): Promise<PolicyResult<W>>;
  close(): Promise<void>;
};

export class PolicyThreadFailed extends Error {
  override readonly name = 'PolicyThreadDied';
  readonly code = 'policy_thread_died';
}

export type PolicyThreadOptions = {
  readonly maxHeapMiB?: number;
  /**
   * Called after each task with the duration of the task in seconds. The duration includes the time for which
   * the task waited for the thread.
   */
  readonly onPerformed?: (kind: PolicyWork['kind'], seconds: number) => void;
};

/**
 * The size of the young generation in the V8 heap of the thread. V8 keeps two thirds of it in memory after a
 * large policy. A larger size makes writes no faster.
 */
const YOUNG_HEAP_MIB = 24;

/** Returns a policy thread. The first call of `begin` or `perform` starts the worker thread. */
export function createPolicyThread({
  maxHeapMiB = 2048,
  onPerformed = () => {},
}: PolicyThreadOptions = {}): PolicyThread {
  let running: WorkerClient<PolicyThreadRequests> | undefined;
  let isDown = false;
  const listeners = new Set<(failure: string | null) => void>();
  const report = (failure: string | null): void => {
    isDown = failure !== null;
    for (const listener of listeners) listener(failure);
  };

  const end = async (reason: string): Promise<void> => {
    const ended = running;
    running = undefined;
    await ended?.end(reason);
  };

  const start = (): WorkerClient<PolicyThreadRequests> => {
    const given = {
      entry: 'node/policy.worker.cjs',
      name: 'the policy thread',
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMiB, maxYoungGenerationSizeMb: YOUNG_HEAP_MIB },
      holdsProcess: false,
    };
    running = new WorkerClient(given, {
      failed: (reason) => {
        running = undefined;
        report(reason);
      },
      requestError: (sent) => new Error(`read and compile the policy: ${(sent as SentFailure).message}`),
      terminationError: (reason) => new PolicyThreadFailed(reason),
    });
    return running;
  };

  const perform = async (work: PolicyWork, transfer: boolean): Promise<PolicyResult<PolicyWork>> => {
    const thread = running ?? start();
    if (isDown)
      void thread.request('begin', []).then(
        () => report(null),
        () => {},
      );
    const { result, samplesId } = await thread.request('perform', [work], transfer ? ownBuffers(work) : []);
    if (!('samples' in result)) return result;
    if (samplesId === null) return result;
    const samples = thread.request('samples', [samplesId]);
    // Mark the promise as handled; the requester of the samples still receives a failure. Without this line,
    // failed samples that no code requests could end the process by an unhandled rejection.
    samples.catch(() => {});
    return { ...result, samples };
  };

  return {
    async begin() {
      await (running ?? start()).request('begin', []);
      isDown = false;
    },
    watch(listener) {
      return addListener(listeners, listener);
    },
    async perform(work, { transfer = false, signal } = {}) {
      if (signal?.aborted === true) throw new PolicyThreadFailed('the request was cancelled before it began');
      const abort = (): void => void end('the policy thread was ended: the request was cancelled');
      signal?.addEventListener('abort', abort, { once: true });
      const began = performance.now();
      try {
        return (await perform(work, transfer)) as PolicyResult<typeof work>;
      } finally {
        signal?.removeEventListener('abort', abort);
        onPerformed(work.kind, (performance.now() - began) / 1_000);
      }
    },
    close: () => end('the policy thread was closed'),
  };
}
