import { parentPort, workerData } from 'node:worker_threads';
import { Descriptors } from '#sockets/descriptors.js';
import { LocalDnsProxy } from './local-dns-proxy.js';
import type { Asks, FromThread, Given, ToThread } from './messages.js';

const TELL_MS = 200;

const port = parentPort;
if (port === null) throw new Error('the DNS proxy runs in a worker thread');
const { options, descriptors } = workerData as Given;
const proxy = new LocalDnsProxy(
  options,
  (alive, dead) => tell({ kind: 'aliveness', alive, dead }),
  new Descriptors(descriptors),
);

function perform(what: keyof Asks): unknown {
  switch (what) {
    case 'open':
      return proxy.open();
    case 'close':
      return proxy.close();
    case 'stats':
      return proxy.stats();
    case 'names':
      return proxy.names();
  }
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
      return proxy.resolver.use(message.lookups);
    case 'grant_by':
      return proxy.grantBy(message.port);
    case 'lookups_wanted':
      proxy.wantLookups(message.wanted);
      return;
    case 'ask':
      return tell(await answer(message.id, message.what));
  }
});

function tell(message: FromThread): void {
  port?.postMessage(message);
}

setInterval(() => {
  const seen = proxy.takeSeen();
  if (seen.lookups.length + seen.named.length + seen.lost > 0) tell({ kind: 'seen', seen });
}, TELL_MS);
