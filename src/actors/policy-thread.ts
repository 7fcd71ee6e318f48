import { AskedThread } from '#threads/asked-thread.js';
import type { SentFailure } from '#threads/messages.js';
import { ownBuffers } from './own-buffers.js';
import type { PolicyAsks, PolicyResult, PolicySurroundings, PolicyWork } from './policy-work.js';

/** Reads, compiles and explains policies off the event loop. */
export type PolicyThread = {
  /**
   * Rejects with `PolicyThreadDied` when the thread dies of it; the next work starts another thread. With `transfer`
   * the buffers of the work are gone afterwards. An abort ends the thread, since nothing else stops a compilation.
   */
  perform<W extends PolicyWork>(
    work: W,
    options?: { transfer?: boolean; signal?: AbortSignal },
  ): Promise<PolicyResult<W>>;
  /**
   * Starts the thread, and has it do what writes ask for, a little at a time, until its code is compiled for that or
   * there is other work: the first large write takes half as long then. Rejects where the thread dies meanwhile.
   */
  rehearse(surroundings: PolicySurroundings): Promise<void>;
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

/** Some 100 ms each at first; after these, more save less than they cost. */
const REHEARSALS = 4;

/** Starts no thread before the first work. */
export function createPolicyThread({
  maxHeapMiB = 2048,
  onPerformed = () => {},
}: PolicyThreadOptions = {}): PolicyThread {
  let running: AskedThread<PolicyAsks> | undefined;
  let works = 0;

  const end = async (reason: string): Promise<void> => {
    const ended = running;
    running = undefined;
    await ended?.end(reason);
  };

  const start = (): AskedThread<PolicyAsks> => {
    const given = {
      entry: 'src/actors/policy-worker.js',
      name: 'the policy thread',
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMiB, maxYoungGenerationSizeMb: YOUNG_HEAP_MIB },
      holdsProcess: false,
    };
    running = new AskedThread(given, {
      died: () => {
        running = undefined;
      },
      failureOf: (sent) => new Error(`read and compile the policy: ${(sent as SentFailure).message}`),
      endOf: (reason) => new PolicyThreadDied(reason),
    });
    return running;
  };

  const perform = async (work: PolicyWork, transfer: boolean): Promise<PolicyResult<PolicyWork>> => {
    const thread = running ?? start();
    const { result, sampleId } = await thread.ask('perform', [work], transfer ? ownBuffers(work) : []);
    if (!('sample' in result)) return result;
    if (sampleId === null) return result;
    const sample = thread.ask('sample', [sampleId]);
    // Whoever asks for it is told; nobody need ask.
    sample.catch(() => {});
    return { ...result, sample };
  };

  const thread: PolicyThread = {
    async perform(work, { transfer = false, signal } = {}) {
      if (signal?.aborted === true) throw new PolicyThreadDied('the work was given up before it began');
      const abort = (): void => void end('the policy thread was ended: the work was given up');
      signal?.addEventListener('abort', abort, { once: true });
      works++;
      const began = performance.now();
      try {
        return (await perform(work, transfer)) as PolicyResult<typeof work>;
      } finally {
        signal?.removeEventListener('abort', abort);
        onPerformed(work.kind, (performance.now() - began) / 1_000);
      }
    },
    async rehearse(surroundings) {
      const first = works;
      for (let round = 0; round < REHEARSALS && works === first + round; round++)
        await thread.perform({ kind: 'rehearse', round, surroundings });
    },
    close: () => end('the policy thread was closed'),
  };
  return thread;
}
