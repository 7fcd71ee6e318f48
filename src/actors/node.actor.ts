import { type EventObject, fromCallback, fromPromise } from 'xstate';
import { type IntegrationsPorts, integrationsActor } from '#actors/kubernetes/integrations.actor.js';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import type { Cluster } from '#cluster/cluster.js';
import type { CanaryHealth } from '#cluster/rollout/canary-health.js';
import type { SupervisedPart } from '#contracts/supervised-part.js';
import type { DnsProxy } from '#dns/dns-proxy.js';
import type { PrepareWritePorts } from '#policies/write/prepare-write.js';
import { nodeChart } from '#statecharts/node.chart.js';
import { supervisedPartChart } from '#statecharts/supervised-part.chart.js';
import type { SettingsStore } from '#store/store-types.js';
import { clusterActor } from './cluster.actor.js';
import { type DataplanePorts, dataplaneActor } from './dataplane.actor.js';
import { dnsProxyActor } from './dns-proxy.actor.js';
import type { EventSwitch } from './event-switch.js';
import { pendingChangeActor } from './pending-change.actor.js';
import { performanceModeActor } from './performance-mode.actor.js';
import { policyActor } from './policy.actor.js';
import { type ReloadPorts, reloadActor } from './reload.actor.js';
import { type ServicePlanePorts, servicePlaneActor } from './service-plane.actor.js';

export type NodePorts = {
  readonly policyWrites: PrepareWritePorts;
  readonly dataplane: DataplanePorts | null;
  /** The DNS proxy; null if the configuration has no `dns` section. */
  readonly dns: DnsProxy | null;
  /**
   * The service plane (TLS and HTTP inspection); null if the configuration has no `service_plane` section.
   */
  readonly servicePlane: ServicePlanePorts | null;
  /** The cluster; null if the configuration has no `cluster` section. */
  readonly cluster: Cluster | null;
  readonly settings: SettingsStore;
  readonly health: Pick<CanaryHealth, 'observe'>;
  readonly supervised: Readonly<
    Record<
      'observer' | 'policyFile' | 'writeThread' | 'explainThread' | 'draftThread' | 'kubernetesThread',
      SupervisedPart | null
    >
  >;
  /** The configuration file; null on a node that was started without one. */
  readonly reload: ReloadPorts | null;
  readonly integrations: IntegrationsPorts;
  readonly events: EventSwitch;
  readonly now: () => Date;
};

export function nodeActor(bus: Bus<Message>, ports: NodePorts) {
  const { policyWrites, dataplane, dns, servicePlane, cluster, settings, supervised, events, now } = ports;
  return nodeChart.provide({
    actions: { publish: (_, { message }) => bus.publish(message) },
    actors: {
      policy: policyActor(bus, policyWrites, cluster),
      dataplane: dataplaneActor(bus, dataplane),
      dnsProxy: dnsProxyActor(bus, dns, dataplane?.datapath ?? null),
      servicePlane: servicePlaneActor(bus, servicePlane, dataplane?.datapath ?? null),
      cluster: clusterActor(cluster),
      pendingChange: pendingChangeActor(bus, {
        policies: policyWrites.policies,
        cluster,
        health: ports.health,
        enforced: dataplane !== null,
        kernelSeen: policyWrites.beforeRestore ?? (async () => {}),
        now,
      }),
      performanceMode: performanceModeActor(bus, { settings, events, now }),
      reload: reloadActor(bus, ports.reload),
      observer: supervisedPartActor(supervised.observer),
      policyFile: supervisedPartActor(supervised.policyFile),
      writeThread: supervisedPartActor(supervised.writeThread),
      explainThread: supervisedPartActor(supervised.explainThread),
      draftThread: supervisedPartActor(supervised.draftThread),
      kubernetesThread: supervisedPartActor(supervised.kubernetesThread),
      integrations: integrationsActor(ports.integrations),
    },
  });
}

/**
 * Creates the actor of a supervised part: its statechart, which acts on `part`. `part` is null if the node
 * does not have this part.
 */
export function supervisedPartActor(part: SupervisedPart | null) {
  return supervisedPartChart.provide({
    actors: {
      start: fromPromise(async () => part?.begin()),
      watch: fromCallback<EventObject>(({ sendBack }) =>
        part?.watch((reason) =>
          sendBack(reason === null ? { type: 'part.recovered' } : { type: 'part.failed', reason }),
        ),
      ),
    },
  });
}
