import { receiveMessageOnPort, workerData } from 'node:worker_threads';
import { Handover } from '#sockets/handover.js';
import { Splicer } from '#sockets/splicer.js';
import type { GivenToSplice, SpliceOrder } from './messages.js';

/** Only so that a process ends which rings no bell. */
const WAIT_MS = 1_000;

const { handover, port } = workerData as GivenToSplice;
const splicer = new Splicer(new Handover(handover));

function obey(orders: readonly SpliceOrder[]): void {
  for (const { id, pair } of orders) {
    if (pair === null) splicer.cut(id);
    else splicer.add(id, ...pair);
  }
}

// This thread has no turns of an event loop: it waits in the kernel for its sockets and for the bell.
for (;;) {
  const ended = splicer.turn(WAIT_MS);
  if (ended.length > 0) port.postMessage(ended);
  for (;;) {
    const said = receiveMessageOnPort(port);
    if (said === undefined) break;
    obey(said.message as readonly SpliceOrder[]);
  }
}
