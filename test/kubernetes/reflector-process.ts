import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { reflect } from '#kubernetes/watch/reflector.js';
import { seenPod } from '#test/kubernetes/pod-play.js';
import { scope } from '#test/kubernetes/sample.js';

/**
 * Measures a reflector of all pods in a thread of its own. Arguments: URL of the server, file of its CA,
 * token. Prints a `Figures` as JSON after the first list.
 */
export type Figures = {
  readonly objects: number;
  readonly completeMs: number;
  /** The increase of the resident memory in MiB: its peak until the list is complete, and after a pause. */
  readonly peakMiB: number;
  readonly restMiB: number;
  /** The time that the main thread was busy in all, which is not shorter than its longest block. */
  readonly busyMs: number;
};

type Access = { readonly url: string; readonly caPem: string; readonly token: string };

const memoryMiB = (field: 'VmHWM' | 'VmRSS'): number =>
  Number(new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) / 1_024;

async function measure([url = '', caFile = '', token = '']: readonly string[]): Promise<Figures> {
  const access: Access = { url, caPem: readFileSync(caFile, 'utf8'), token };
  await pause(500);
  const before = memoryMiB('VmRSS');
  const worker = new Worker(new URL(import.meta.url), { workerData: access });
  const next = () => new Promise<number>((resolve, reject) => worker.once('message', resolve).once('error', reject));
  await next();
  const began = performance.now();
  const busy = performance.eventLoopUtilization();
  worker.postMessage('begin');
  const objects = await next();
  const completeMs = performance.now() - began;
  const peakMiB = memoryMiB('VmHWM') - before;
  const { active: busyMs } = performance.eventLoopUtilization(busy);
  await pause(3_000);
  const restMiB = memoryMiB('VmRSS') - before;
  await worker.terminate();
  return { objects, completeMs, peakMiB, restMiB, busyMs };
}

/** Keeps the pods in memory, as the Kubernetes thread does. Prints their number after the first list. */
function reflectPods({ url, caPem, token }: Access): void {
  const pods = new Map<string, unknown>();
  const server = { url, credentials: async () => ({ caPem, token }) };
  reflect({ server, scope: scope('pods'), keep: seenPod }).subscribe((message) => {
    if (message.type !== 'listed') return;
    for (const pod of message.objects) pods.set(pod.uid, pod);
    parentPort?.postMessage(pods.size);
  });
}

if (isMainThread) process.stdout.write(`${JSON.stringify(await measure(process.argv.slice(2)))}\n`);
else {
  parentPort?.once('message', () => reflectPods(workerData as Access));
  parentPort?.postMessage(0);
}
