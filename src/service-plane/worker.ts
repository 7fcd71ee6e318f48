import { parentPort, workerData } from 'node:worker_threads';
import { Handover } from '#sockets/handover.js';
import { LocalServicePlane } from './local-service-plane.js';
import type { Asks, FromThread, Given, ToThread } from './messages.js';
import { Splices } from './splice.js';

const TELL_MS = 200;

const port = parentPort;
if (port === null) throw new Error('the service plane runs in worker threads');
const { options, ticketKeys, splices } = workerData as Given;
const plane = new LocalServicePlane(
  options,
  Buffer.from(ticketKeys),
  new Splices(splices.port, new Handover(splices.handover)),
);

function perform(what: keyof Asks): unknown {
  return plane[what]();
}

async function answer(id: number, what: keyof Asks): Promise<FromThread> {
  try {
    return { kind: 'answer', id, value: await perform(what) };
  } catch (failure) {
    return { kind: 'failure', id, message: failure instanceof Error ? failure.message : String(failure) };
  }
}

port.on('message', async (message: ToThread) => {
  switch (message.kind) {
    case 'use':
      return plane.use(message.inspection);
    case 'use_ca':
      return plane.useCa(message.ca);
    case 'grants_by':
      return plane.grantsBy(message.port);
    case 'allowed_wanted':
      return plane.setAllowedWanted(message.wanted);
    case 'ask':
      return tell(await answer(message.id, message.what));
  }
});

function tell(message: FromThread): void {
  port?.postMessage(message);
}

setInterval(() => {
  const seen = plane.takeSeen();
  if (seen.connections.length + seen.lost > 0) tell({ kind: 'seen', seen });
}, TELL_MS);
