import { workerData } from 'node:worker_threads';
import { Descriptors } from '#sockets/descriptors.js';
import { WorkerServer } from '#threads/worker-server.js';
import type { DnsAsks, FromThread, Given, ToThread } from './dns-messages.js';
import { LocalDnsProxy } from './local-dns-proxy.js';

const TELL_MS = 200;

const parent = new WorkerServer<DnsAsks, ToThread, FromThread>('the DNS proxy');
const { options, descriptors } = workerData as Given;
const proxy = new LocalDnsProxy(
  options,
  (alive, dead) => parent.tell({ kind: 'aliveness', alive, dead }),
  new Descriptors(descriptors),
);

function hear(message: ToThread): void {
  switch (message.kind) {
    case 'use':
      proxy.resolver.use(message.lookups);
      return;
    case 'grant_by':
      proxy.grantBy(message.port);
      return;
    case 'lookups_wanted':
      proxy.wantLookups(message.wanted);
  }
}

parent.serve(
  { open: () => proxy.open(), close: () => proxy.close(), stats: () => proxy.stats(), names: () => proxy.names() },
  hear,
);

setInterval(() => {
  proxy.sendHits();
  const seen = proxy.takeSeen();
  if (seen.lookups.length + seen.rebindings.length + seen.named.length + seen.lost + seen.lostDenied > 0)
    parent.tell({ kind: 'seen', seen });
}, TELL_MS);
