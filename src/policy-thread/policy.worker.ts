import type { ProofSample } from '#contracts/proof-types.js';
import { WorkerServer } from '#threads/worker-server.js';
import { ownBuffers } from './own-buffers.js';
import { createPolicyTaskRunner } from './policy-task-runner.js';
import type { PolicyThreadRequests } from './policy-work.js';

const parent = new WorkerServer<PolicyThreadRequests>('the policy thread');
const perform = createPolicyTaskRunner();
const samples = new Map<number, Promise<ProofSample>>();
let lastSample = 0;

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
      const result = perform(work);
      if (!('sample' in result)) return { result, sampleId: null };
      const { sample } = result;
      return { result: { ...result, sample: null }, sampleId: sample === null ? null : keep(sample) };
    },
    sample: (id) => {
      const sample = samples.get(id);
      if (sample === undefined) throw new Error(`there is no sample ${id}`);
      samples.delete(id);
      return sample;
    },
  },
  undefined,
  { transferredWith: ownBuffers },
);
