import type { SupervisedPart } from '#contracts/supervised-part.js';
import type { SentFailure } from '#threads/thread-messages.js';
import { WorkerClient } from '#threads/worker-client.js';
import { ownBuffers } from './own-buffers.js';
import type { PolicyAsks, PolicyResult, PolicyWork } from './policy-work.js';

/** Reads, compiles and explains policies off the event loop. A thread that was ended on purpose has not failed. */
export type PolicyThread = SupervisedPart & {
  /**
   * Rejects with `PolicyThreadDied` when the thread dies of it; the next work starts another thread. With `transfer`
   * the buffers of the work are gone afterwards. An abort ends the thread, since nothing else stops a compilation.
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
  /** Told how long each work took, its wait for the thread included. */
  readonly onPerformed?: (kind: PolicyWork['kind'], seconds: number) => void;
};

/** Nearly all that is made of a large policy lives on: with the default it is copied again and again while it is made. */
const YOUNG_HEAP_MIB = 96;

/** Starts no thread before the first work. */
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
    // Whoever asks for it is told; nobody need ask.
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
