import type { ProofSample } from '#contracts/policy/proof-types.js';
import { releaseMemory } from '#libc/memory-release.js';
import { WorkerServer } from '#threads/worker-server.js';
import { ownBuffers } from './own-buffers.js';
import { createPolicyTaskRunner } from './policy-task-runner.js';
import type { PolicyThreadRequests, PolicyWork } from './policy-work.js';
import { QuietRelease } from './quiet-release.js';

const parent = new WorkerServer<PolicyThreadRequests>('the policy thread');
const perform = createPolicyTaskRunner();
const samples = new Map<number, Promise<ProofSample>>();
let lastSample = 0;
/** A task is large if the text of its policy has this size, about 10,000 rules. */
const LARGE_TEXT_BYTES = 1024 * 1024;
const QUIET_MS = 500;
const release = new QuietRelease(releaseMemory, QUIET_MS);

function textOf(work: PolicyWork): Uint8Array | undefined {
  if ('base' in work) return work.base.text?.body;
  return 'text' in work ? work.text?.body : undefined;
}

/**
 * Stores the promise of a proof sample and returns its id. The main thread requests the sample with this id.
 * If the computation of the sample failed, this request fails.
 */
function keep(sample: Promise<ProofSample>): number {
  sample.catch(() => {});
  samples.set(++lastSample, sample);
  return lastSample;
}

parent.serve(
  {
    begin: () => {},
    perform: (work) => {
      const isLarge = (textOf(work)?.byteLength ?? 0) >= LARGE_TEXT_BYTES;
      const result = perform(work);
      release.taskEnded({ isLarge });
      if (!('sample' in result)) return { result, sampleId: null };
      const { sample } = result;
      return { result: { ...result, sample: null }, sampleId: sample === null ? null : keep(sample) };
    },
    sample: (id) => {
      const sample = samples.get(id);
      if (sample === undefined) throw new Error(`return the packets that prove a program: there is no sample ${id}`);
      samples.delete(id);
      return sample;
    },
  },
  undefined,
  { transferredWith: ownBuffers },
);
