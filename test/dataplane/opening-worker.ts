import { parentPort, workerData } from 'node:worker_threads';
import { FLOW_KEY_BYTES } from '#dataplane/abi/flow.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { PASSED } from './loaded.js';

export type OpeningInput = {
  readonly ingressFd: number;
  readonly cutFd: number;
  /** Ethernet frames, each with the key of the flow that the frame opens. */
  readonly flows: readonly { readonly frame: Uint8Array; readonly key: Uint8Array }[];
  readonly stop: SharedArrayBuffer;
};
export type Opened = { readonly sent: number; readonly refused: number; readonly lost: number };

const { ingressFd, cutFd, flows, stop } = workerData as OpeningInput;
const stopped = new Int32Array(stop);
const runs = flows.map(({ frame, key }) => {
  const request = new Uint8Array(FLOW_KEY_BYTES + 8);
  request.set(key);
  return {
    request,
    opening: new TestRun(ingressFd, frame, undefined, undefined),
    cut: new TestRun(cutFd, undefined, request, undefined),
  };
});
let [sent, refused, lost] = [0, 0, 0];
while (Atomics.load(stopped, 0) === 0) {
  for (const { opening } of runs) {
    if (opening.run() === PASSED) sent++;
    else refused++;
  }
  for (const { cut, request } of runs) {
    request[FLOW_KEY_BYTES] = 0;
    cut.run();
    if (request[FLOW_KEY_BYTES] === 0) lost++;
  }
}
parentPort?.postMessage({ sent, refused, lost } satisfies Opened);
