import { receiveMessageOnPort, workerData } from 'node:worker_threads';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import { Handover } from '#sockets/listening/handover.js';
import { offloadFaultOf, SpliceOffloader } from '#splicing/offloader.js';
import { Splicer } from '#splicing/splicer.js';
import { WorkerServer } from '#threads/worker-server.js';
import type { FromSplicer, SpliceOrder, SplicerWorkerData } from './service-plane-messages.js';

/**
 * The longest wait in `epoll_wait`, in milliseconds. Because of this limit, the process can end even if no
 * signal arrives on the eventfd.
 */
const WAIT_MS = 1_000;

const LOOK_MS = 1_000;

const { handover, port, thread } = workerData as SplicerWorkerData;
const parent = new WorkerServer<object, never, FromSplicer>('the splicing thread');
const shared = new Handover(handover);
const splicer = new Splicer(shared);

let lookAt = 0;

function handle(orders: readonly SpliceOrder[]): void {
  for (const order of orders) {
    if ('spliceBy' in order) spliceBy(order.spliceBy);
    else if ('suspended' in order) splicer.setSuspended(order.id, order.suspended);
    else if (order.pair === null) splicer.cut(order.id);
    else splicer.add(order.id, ...order.pair);
  }
}

function spliceBy(point: SpliceOffload): void {
  let spliceFault: string | null = null;
  try {
    splicer.setOffloader(() => new SpliceOffloader(point, thread, shared.descriptors));
  } catch (failure) {
    // If the datapath is replaced during this call, the call fails. A later message then contains the BPF
    // objects of the new datapath.
    spliceFault = offloadFaultOf(failure);
  }
  parent.send({ spliceFault: spliceFault });
}

// This thread runs no event loop: it waits in `epoll_wait` for its sockets and for the eventfd.
for (;;) {
  const ended = splicer.poll(WAIT_MS);
  if (ended.length > 0) port.postMessage(ended);
  if (performance.now() >= lookAt) {
    lookAt = performance.now() + LOOK_MS;
    splicer.checkOffloaded();
  }
  for (;;) {
    const received = receiveMessageOnPort(port);
    if (received === undefined) break;
    handle(received.message as readonly SpliceOrder[]);
  }
}
