import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { ProofSample } from '#policy/proof.js';
import { ownBuffers } from './own-buffers.js';
import type { PolicyResult, PolicySurroundings, PolicyWork, ResultMessage, WorkMessage } from './policy-work.js';

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
  readonly entry?: string;
  readonly maxHeapMiB?: number;
  /** Told how long each work took, its wait for the thread included. */
  readonly onPerformed?: (kind: PolicyWork['kind'], seconds: number) => void;
};

const here = fileURLToPath(import.meta.url);
/** Worker threads run built code, also where the sources are loaded directly. */
const BUILT_ENTRY = here.includes('/dist/src/actors/')
  ? fileURLToPath(new URL('./policy-worker.js', import.meta.url))
  : fileURLToPath(new URL('../../dist/src/actors/policy-worker.js', import.meta.url));

/** Nearly all that is made of a large policy lives on: with the default it is copied again and again while it is made. */
const YOUNG_HEAP_MIB = 96;

/** Some 100 ms each at first; after these, more save less than they cost. */
const REHEARSALS = 4;

type Pending = { readonly resolve: (result: never) => void; readonly reject: (error: Error) => void };

/** Starts no thread before the first work. */
export function createPolicyThread({
  entry = BUILT_ENTRY,
  maxHeapMiB = 2048,
  onPerformed = () => {},
}: PolicyThreadOptions = {}): PolicyThread {
  let running: { readonly worker: Worker; readonly pending: Map<number, Pending> } | undefined;
  let lastId = 0;

  const end = async (reason: string): Promise<void> => {
    const ended = running;
    running = undefined;
    if (ended === undefined) return;
    for (const { reject } of ended.pending.values()) reject(new PolicyThreadDied(reason));
    ended.pending.clear();
    await ended.worker.terminate();
  };

  const start = () => {
    const worker = new Worker(entry, {
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMiB, maxYoungGenerationSizeMb: YOUNG_HEAP_MIB },
    });
    const pending = new Map<number, Pending>();
    const started = { worker, pending };
    const sampleOf = (id: number): Promise<ProofSample> => {
      const sample = new Promise<ProofSample>((resolve, reject) => {
        pending.set(id, { resolve, reject });
      });
      // Whoever asks for it is told; nobody need ask.
      sample.catch(() => {});
      return sample;
    };
    const died = (reason: string): void => {
      if (running === started) running = undefined;
      for (const { reject } of pending.values()) reject(new PolicyThreadDied(reason));
      pending.clear();
    };
    worker.on('message', (message: ResultMessage) => {
      const waiting = pending.get(message.id);
      pending.delete(message.id);
      if ('result' in message && message.sampleFollows)
        waiting?.resolve({ ...message.result, sample: sampleOf(message.id) } as never);
      else if ('failure' in message) waiting?.reject(new Error(`read and compile the policy: ${message.failure}`));
      else if ('sample' in message) waiting?.resolve(message.sample as never);
      else waiting?.resolve(message.result as never);
      if (pending.size === 0) worker.unref();
    });
    worker.on('error', (error) => died(`the policy thread died: ${error.message}`));
    worker.on('exit', (code) => died(`the policy thread ended with ${code}`));
    running = started;
    return started;
  };

  const thread: PolicyThread = {
    perform(work, { transfer = false, signal } = {}) {
      const { worker, pending } = running ?? start();
      const id = ++lastId;
      const began = performance.now();
      return new Promise((resolve, reject) => {
        const abort = (): void => void end('the policy thread was ended: the work was given up');
        if (signal?.aborted === true) {
          reject(new PolicyThreadDied('the work was given up before it began'));
          return;
        }
        signal?.addEventListener('abort', abort, { once: true });
        const settle =
          <A extends unknown[]>(how: (...values: A) => void) =>
          (...values: A): void => {
            signal?.removeEventListener('abort', abort);
            onPerformed(work.kind, (performance.now() - began) / 1_000);
            how(...values);
          };
        pending.set(id, { resolve: settle(resolve), reject: settle(reject) });
        worker.ref();
        const message: WorkMessage = { id, work };
        worker.postMessage(message, transfer ? ownBuffers(message) : []);
      });
    },
    async rehearse(surroundings) {
      const first = lastId;
      for (let round = 0; round < REHEARSALS && lastId === first + round; round++)
        await thread.perform({ kind: 'rehearse', round, surroundings });
    },
    close: () => end('the policy thread was closed'),
  };
  return thread;
}
