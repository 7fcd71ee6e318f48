import { workerData } from 'node:worker_threads';
import { Descriptors } from '#libc/descriptors.js';
import { WorkerServer } from '#threads/worker-server.js';
import type { DnsRequests, DnsWorkerData, FromDnsThread, ToDnsThread } from './dns-messages.js';
import { LocalDnsProxy } from './local-dns-proxy.js';

const REPORT_MS = 200;

const parent = new WorkerServer<DnsRequests, ToDnsThread, FromDnsThread>('the DNS proxy');
const { options, descriptors } = workerData as DnsWorkerData;
const proxy = new LocalDnsProxy(
  options,
  (alive, dead) => parent.send({ kind: 'aliveness', alive, dead }),
  new Descriptors(descriptors),
);

parent.serve(
  {
    open: (descriptors, waitMs) => proxy.open(descriptors, waitMs),
    change: (settings, descriptors) => proxy.change(settings, descriptors),
    changeMembers: (change) => proxy.resolver.members.change(change),
    replaceMembers: (list) => proxy.resolver.members.replace(list),
    close: () => proxy.close(),
    stats: () => proxy.stats(),
    names: () => proxy.names(),
  },
  {
    members: (message) => proxy.resolver.members.replace(message.list),
    use: (message) => proxy.resolver.use(message.lookups),
    set_grant_port: (message) => proxy.setGrantPort(message.port),
    lookups_wanted: (message) => proxy.wantLookups(message.wanted),
  },
);

setInterval(() => {
  proxy.sendHits();
  const seen = proxy.drainSeen();
  if (seen.lookups.length + seen.rebindings.length + seen.named.length + seen.lost + seen.lostDenied > 0)
    parent.send({ kind: 'seen', seen });
}, REPORT_MS);
