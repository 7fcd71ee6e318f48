import { collectDefaultMetrics } from 'prom-client';
import type { GroupTraffic } from '#contracts/datapath/datapath.js';
import type { ReadinessReport } from '#contracts/readiness.js';
import { clusterMetrics } from './cluster-metrics.js';
import { dnsMetrics } from './dns-metrics.js';
import { familiesOf } from './families.js';
import { kubernetesMetrics } from './kubernetes-metrics.js';
import { nodeMetrics } from './node-metrics.js';
import { observerMetrics } from './observer-metrics.js';
import { servicePlaneMetrics } from './service-plane-metrics.js';
import { sourceGroupMetrics } from './source-group-metrics.js';
import type { NodeStats } from './stats.js';
import { createWorkMetrics, type WorkMetrics } from './work-metrics.js';

export type MetricSources = {
  readonly version: string;
  stats(): Promise<NodeStats>;
  readiness(): ReadinessReport;
  /** Returns the traffic of the source groups; null if the node does not count it. */
  groupTraffic?(): Promise<GroupTraffic | null>;
};

export type MetricFamily = {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly labels: readonly string[];
};

export type Metrics = Omit<WorkMetrics, 'registry'> & {
  readonly contentType: string;
  /**
   * Returns the metrics in the Prometheus text format. Each call reads the counters of the node. If this read
   * fails, `weir_stats_up` is 0, counters without labels are 0, and counters with labels have no samples.
   */
  scrape(): Promise<string>;
  /** Lists every metric family that a scrape can contain, sorted by name. */
  families(): readonly MetricFamily[];
};

const EVENT_LOOP_MS = 100;
const MISNAMED = ['handles', 'requests', 'resources'].map((of) => `weir_nodejs_active_${of}_total`);

/**
 * Creates the metrics registry of the node. To bound the number of series, no label contains an address, a
 * hostname or a rule id (D35). The ids of source groups appear only if the configuration asks for them, up to
 * a limit.
 */
export function createMetrics(sources: MetricSources, work = createWorkMetrics()): Metrics {
  const { registry, ...done } = work;
  // With the default precision, the measurement of the event loop delay would wake the main thread 100 times
  // a second.
  collectDefaultMetrics({ register: registry, prefix: 'weir_', eventLoopMonitoringPrecision: EVENT_LOOP_MS });
  // Remove three gauges of `prom-client` whose names end in `_total`, because Prometheus reserves this suffix
  // for counters. The gauges without the suffix, which have a label `type`, remain.
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  const families = familiesOf(registry);
  families.gauge('weir_build_info', 'Version of this build.', 'version').set({ version: sources.version }, 1);
  const node = nodeMetrics(families);
  const dns = dnsMetrics(families);
  const servicePlane = servicePlaneMetrics(families);
  const observer = observerMetrics(families);
  const cluster = clusterMetrics(families);
  const kubernetes = kubernetesMetrics(families);
  const sourceGroups = sourceGroupMetrics(families);

  return {
    ...done,
    contentType: registry.contentType,
    async scrape() {
      node.readiness(sources.readiness());
      const stats = await sources.stats().catch(() => null);
      node.stats(stats);
      dns.stats(stats?.dns ?? null);
      servicePlane.stats(stats?.servicePlane ?? null);
      observer.stats(stats?.observer ?? null);
      cluster.stats(stats?.cluster ?? null);
      kubernetes.stats(stats?.kubernetes ?? null);
      sourceGroups.traffic((await sources.groupTraffic?.().catch(() => null)) ?? null);
      return registry.metrics();
    },
    families: () =>
      registry
        .getMetricsAsArray()
        .map((metric) => {
          const { name, help, type, labelNames } = metric as unknown as MetricShape;
          return { name, help, type, labels: labelNames };
        })
        .sort((a, b) => (a.name < b.name ? -1 : 1)),
  };
}

/** Fields that a metric of `prom-client` has at run time, but that its type declarations lack. */
type MetricShape = {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly labelNames: readonly string[];
};
