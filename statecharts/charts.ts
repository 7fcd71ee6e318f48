import type { AnyStateMachine } from 'xstate';
import { clusterChart } from './cluster.chart.js';
import { dataplaneChart } from './dataplane.chart.js';
import { dnsProxyChart } from './dns-proxy.chart.js';
import { followChart } from './follow.chart.js';
import { integrationsChart } from './integrations.chart.js';
import { interfacesChart } from './interfaces.chart.js';
import { kubernetesChart } from './kubernetes.chart.js';
import { nodeChart } from './node.chart.js';
import { pendingChangeChart } from './pending-change.chart.js';
import { performanceModeChart } from './performance-mode.chart.js';
import { policyChart } from './policy.chart.js';
import { reloadChart } from './reload.chart.js';
import { servicePlaneChart } from './service-plane.chart.js';
import { supervisedPartChart } from './supervised-part.chart.js';
import { swapChart } from './swap.chart.js';
import { writeChart } from './write.chart.js';

/** All statecharts. The key is the name of the page of the chart in `docs/statecharts/`. */
export const CHARTS: Readonly<Record<string, AnyStateMachine>> = {
  node: nodeChart,
  policy: policyChart,
  write: writeChart,
  follow: followChart,
  dataplane: dataplaneChart,
  interfaces: interfacesChart,
  swap: swapChart,
  'dns-proxy': dnsProxyChart,
  'service-plane': servicePlaneChart,
  cluster: clusterChart,
  integrations: integrationsChart,
  kubernetes: kubernetesChart,
  'pending-change': pendingChangeChart,
  'performance-mode': performanceModeChart,
  reload: reloadChart,
  'supervised-part': supervisedPartChart,
};
