import type { ProofSamples } from '#contracts/policy/proof-types.js';
import { releaseMemory } from '#libc/memory-release.js';
import { WorkerServer } from '#threads/worker-server.js';
import { ownBuffers } from './own-buffers.js';
import { createPolicyTaskRunner } from './policy-task-runner.js';
import type { PolicyThreadRequests, PolicyWork } from './policy-work.js';
import { QuietRelease } from './quiet-release.js';

const parent = new WorkerServer<PolicyThreadRequests>('the policy thread');
const perform = createPolicyTaskRunner();
const kept = new Map<number, Promise<ProofSamples>>();
let lastId = 0;
/** A task is large if the text of its policy has this size, about 10,000 rules. */
const LARGE_TEXT_BYTES = 1024 * 1024;
const QUIET_MS = 500;
const release = new QuietRelease(releaseMemory, QUIET_MS);

function textOf(work: PolicyWork): Uint8Array | undefined {
  if ('base' in work) return work.base.text?.body;
  return 'text' in work ? work.text?.body : undefined;
}

/**
 * Stores the promise of proof samples and returns its id. The main thread requests the samples with this id.
 * If their computation failed, this request fails.
 */
function keep(samples: Promise<ProofSamples>): number {
  samples.catch(() => {});
  kept.set(++lastId, samples);
  return lastId;
}

parent.serve(
  {
    begin: () => {},
    perform: (work) => {
      const isLarge = (textOf(work)?.byteLength ?? 0) >= LARGE_TEXT_BYTES;
      const result = perform(work);
      release.taskEnded({ isLarge });
      if (!('samples' in result)) return { result, samplesId: null };
      const { samples } = result;
      return { result: { ...result, samples: null }, samplesId: samples === null ? null : keep(samples) };
    },
    samples: (id) => {
      const samples = kept.get(id);
      if (samples === undefined) throw new Error(`return the packets that prove a program: there are no samples ${id}`);
      kept.delete(id);
      return samples;
    },
  },
  undefined,
  { transferredWith: ownBuffers },
);
