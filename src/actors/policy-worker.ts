import { parentPort } from 'node:worker_threads';
import { ownBuffers } from './own-buffers.js';
import type { ResultMessage, WorkMessage } from './policy-work.js';
import { createPolicyWorkshop } from './policy-workshop.js';

const port = parentPort;
if (port === null) throw new Error('policy-worker runs as a worker thread only');
const perform = createPolicyWorkshop();

port.on('message', ({ id, work }: WorkMessage) => {
  let message: ResultMessage;
  try {
    message = { id, result: perform(work) };
  } catch (error) {
    message = { id, failure: error instanceof Error ? error.message : String(error) };
  }
  port.postMessage(message, ownBuffers(message));
});
