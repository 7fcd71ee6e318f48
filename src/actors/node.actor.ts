import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/messages.js';
import { clusterChart } from '#statecharts/cluster.chart.js';
import { dnsProxyChart } from '#statecharts/dns-proxy.chart.js';
import { nodeChart } from '#statecharts/node.chart.js';
import { servicePlaneChart } from '#statecharts/service-plane.chart.js';
import type { SettingsStore } from '#store/port.js';
import { type DataplanePorts, dataplaneActor } from './dataplane.actor.js';
import type { JudgementPorts } from './judgement.js';
import { performanceModeActor } from './performance-mode.actor.js';
import { policyActor } from './policy.actor.js';

export type NodePorts = {
  readonly judgement: JudgementPorts;
  readonly dataplane: DataplanePorts | null;
  readonly settings: SettingsStore;
  readonly now: () => Date;
};

/** Binds the node chart to the actors that it supervises. */
export function nodeActor(bus: Bus<Message>, { judgement, dataplane, settings, now }: NodePorts) {
  return nodeChart.provide({
    actions: { publish: (_, { message }) => bus.publish(message) },
    actors: {
      policy: policyActor(bus, judgement),
      dataplane: dataplaneActor(bus, dataplane),
      dnsProxy: dnsProxyChart,
      servicePlane: servicePlaneChart,
      cluster: clusterChart,
      performanceMode: performanceModeActor(bus, { settings, datapath: dataplane?.datapath ?? null, now }),
    },
  });
}
