import { parentPort } from 'node:worker_threads';
import { ownBuffers } from './own-buffers.js';
import type { ResultMessage, WorkMessage } from './policy-work.js';
import { createPolicyWorkshop } from './policy-workshop.js';

const port = parentPort;
if (port === null) throw new Error('policy-worker runs as a worker thread only');
const perform = createPolicyWorkshop();

port.on('message', async ({ id, work }: WorkMessage) => {
  const tell = (message: ResultMessage): void => port.postMessage(message, ownBuffers(message));
  try {
    const result = perform(work);
    if (!('sample' in result)) {
      tell({ id, result, sampleFollows: false });
      return;
    }
    const { sample } = result;
    tell({ id, result: { ...result, sample: null }, sampleFollows: sample !== null });
    if (sample !== null) tell({ id, sample: await sample });
  } catch (error) {
    tell({ id, failure: error instanceof Error ? error.message : String(error) });
  }
});
