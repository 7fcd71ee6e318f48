import { workerData } from 'node:worker_threads';
import { Splices } from '#service-plane/connection/splices.js';
import { Handover } from '#sockets/listening/handover.js';
import { WorkerServer } from '#threads/worker-server.js';
import { LocalServicePlane } from './local-service-plane.js';
import type { FromPlaneThread, PlaneRequests, PlaneWorkerData, ToPlaneThread } from './service-plane-messages.js';

const REPORT_MS = 200;

const parent = new WorkerServer<PlaneRequests, ToPlaneThread, FromPlaneThread>('the service plane');
const { options, ticketKeys, splices } = workerData as PlaneWorkerData;
const plane = new LocalServicePlane(
  options,
  Buffer.from(ticketKeys),
  new Splices(splices.port, new Handover(splices.handover)),
);

function handle(message: ToPlaneThread): void {
  switch (message.kind) {
    case 'members':
      plane.replaceMembers(message.list);
      return;
    case 'use':
      plane.use(message.inspection);
      return;
    case 'accept':
      plane.accept(message.inspection);
      return;
    case 'use_ca':
      plane.useCa(message.ca);
      return;
    case 'grants_by':
      plane.setGrantPort(message.port);
      return;
    case 'set_splice_offload':
      plane.spliceBy(message.point);
      return;
    case 'allowed_wanted':
      plane.setAllowedWanted(message.wanted);
  }
}

parent.serve(
  {
    open: (fd, waitMs) => plane.open(fd, waitMs),
    change: (settings) => plane.change(settings),
    changeMembers: (change) => plane.changeMembers(change),
    replaceMembers: (list) => plane.replaceMembers(list),
    close: () => plane.close(),
    stats: () => plane.stats(),
  },
  handle,
);

let upstreamCaFault: string | null = null;
setInterval(() => {
  if (plane.upstreamCaFault !== upstreamCaFault) {
    upstreamCaFault = plane.upstreamCaFault;
    parent.send({ kind: 'upstream_ca', fault: upstreamCaFault });
  }
  plane.sendHits();
  const seen = plane.drainSeen();
  if (seen.connections.length + seen.lost > 0) parent.send({ kind: 'seen', seen });
}, REPORT_MS);
