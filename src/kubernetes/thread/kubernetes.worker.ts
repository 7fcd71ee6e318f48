import { workerData } from 'node:worker_threads';
import { WorkerServer } from '#threads/worker-server.js';
import { Acknowledgement } from './acknowledgement.js';
import type {
  FromKubernetesThread,
  KubernetesRequests,
  KubernetesWorkerData,
  ToKubernetesThread,
} from './kubernetes-messages.js';
import { LocalKubernetes } from './local-kubernetes.js';

/** Passes messages and requests of the main thread to `LocalKubernetes`. */

const parent = new WorkerServer<KubernetesRequests, ToKubernetesThread, FromKubernetesThread>('the Kubernetes thread');
const { options, acknowledgement } = workerData as KubernetesWorkerData;
const kubernetes = new LocalKubernetes(options, new Acknowledgement(acknowledgement), {
  members: (message) => parent.send({ kind: 'members', message }),
  reflector: (change) => parent.send({ kind: 'reflector', change }),
  failed: (failure) => {
    // Throw outside of RxJS, which would catch the error, so that the error ends the thread.
    setImmediate(() => {
      throw failure;
    });
  },
});

parent.serve(
  {
    membership: (selectors, withinMs) => kubernetes.membership(selectors, withinMs),
    facts: (integration) => kubernetes.facts(integration),
    objectCounts: (integration) => kubernetes.objectCounts(integration),
    membersOf: (keys, after, limit) => kubernetes.membersOf(keys, after, limit),
  },
  {
    stored: (message) => kubernetes.restorePart(message.objects),
    open: () => kubernetes.open(),
    setIntegrations: (message) => kubernetes.setIntegrations(message.integrations),
    setSelectors: (message) => kubernetes.setSelectors(message.selectors),
    setProposedSelectors: (message) => kubernetes.setProposedSelectors(message.selectors),
    release: () => kubernetes.release(),
    members_applied: () => kubernetes.acknowledge(),
  },
);
