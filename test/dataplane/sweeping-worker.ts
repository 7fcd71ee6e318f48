import { parentPort, workerData } from 'node:worker_threads';
import { TestRun } from '#libc/bpf/test-run.js';

export type SweepingInput = { readonly sweepFd: number; readonly stop: SharedArrayBuffer };

const { sweepFd, stop } = workerData as SweepingInput;
const stopped = new Int32Array(stop);
const sweep = new TestRun(sweepFd, undefined, undefined, undefined);
let sweeps = 0;
for (; Atomics.load(stopped, 0) === 0; sweeps++) sweep.run();
parentPort?.postMessage(sweeps);
