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

parent.serve(
  {
    open: (fds, waitMs) => plane.open(fds, waitMs),
    change: (settings) => plane.change(settings),
    changeMembers: (change) => plane.changeMembers(change),
    replaceMembers: (list) => plane.replaceMembers(list),
    decided: () => plane.decided(),
    close: () => plane.close(),
    stats: () => plane.stats(),
  },
  {
    members: (message) => plane.replaceMembers(message.list),
    use: (message) => plane.use(message.inspection),
    accept: (message) => plane.accept(message.inspection),
    use_ca: (message) => plane.useCa(message.ca),
    grants_by: (message) => plane.setGrantPort(message.port),
    set_splice_offload: (message) => plane.spliceBy(message.point),
    allowed_wanted: (message) => plane.setAllowedWanted(message.wanted),
  },
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
