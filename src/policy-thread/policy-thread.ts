import type { SupervisedPart } from '#contracts/supervised-part.js';
import type { SentFailure } from '#threads/thread-messages.js';
import { WorkerClient } from '#threads/worker-client.js';
import { ownBuffers } from './own-buffers.js';
import type { PolicyAsks, PolicyResult, PolicyWork } from './policy-work.js';

/**
 * Reads, compiles and explains policies outside the main thread. A thread that was ended on purpose has not
 * failed.
 */
export type PolicyThread = SupervisedPart & {
  /**
   * Rejects with `PolicyThreadDied` if the thread dies during the task; the next task starts another thread.
   * With `transfer` the buffers of the task are detached afterwards. An abort ends the thread, since nothing
   * else stops a compilation.
   */
  perform<W extends PolicyWork>(
    work: W,
    options?: { transfer?: boolean; signal?: AbortSignal },
  ): Promise<PolicyResult<W>>;
  close(): Promise<void>;
};

export class PolicyThreadDied extends Error {
  override readonly name = 'PolicyThreadDied';
  readonly code = 'policy_thread_died';
}

export type PolicyThreadOptions = {
  readonly maxHeapMiB?: number;
  /** Called with the duration of each task, including its wait for the thread. */
  readonly onPerformed?: (kind: PolicyWork['kind'], seconds: number) => void;
};

/**
 * Most objects of a large policy survive. With the default size, the garbage collector would copy them
 * repeatedly.
 */
const YOUNG_HEAP_MIB = 96;

/** Starts no thread before the first task. */
export function createPolicyThread({
  maxHeapMiB = 2048,
  onPerformed = () => {},
}: PolicyThreadOptions = {}): PolicyThread {
  let running: WorkerClient<PolicyAsks> | undefined;
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

  const start = (): WorkerClient<PolicyAsks> => {
    const given = {
      entry: 'src/policy-thread/policy.worker.js',
      name: 'the policy thread',
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMiB, maxYoungGenerationSizeMb: YOUNG_HEAP_MIB },
      holdsProcess: false,
    };
    running = new WorkerClient(given, {
      died: (reason) => {
        running = undefined;
        report(reason);
      },
      failureOf: (sent) => new Error(`read and compile the policy: ${(sent as SentFailure).message}`),
      endOf: (reason) => new PolicyThreadDied(reason),
    });
    return running;
  };

  const perform = async (work: PolicyWork, transfer: boolean): Promise<PolicyResult<PolicyWork>> => {
    const thread = running ?? start();
    if (isDown)
      void thread.ask('begin', []).then(
        () => report(null),
        () => {},
      );
    const { result, sampleId } = await thread.ask('perform', [work], transfer ? ownBuffers(work) : []);
    if (!('sample' in result)) return result;
    if (sampleId === null) return result;
    const sample = thread.ask('sample', [sampleId]);
    // The requester of the sample gets this failure; without a requester it must not be an unhandled
    // rejection.
    sample.catch(() => {});
    return { ...result, sample };
  };

  return {
    async begin() {
      await (running ?? start()).ask('begin', []);
      isDown = false;
    },
    watch(listener) {
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
      };
    },
    async perform(work, { transfer = false, signal } = {}) {
      if (signal?.aborted === true) throw new PolicyThreadDied('the work was given up before it began');
      const abort = (): void => void end('the policy thread was ended: the work was given up');
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
