import { collectDefaultMetrics } from 'prom-client';
import { dnsMetrics } from './dns-metrics.js';
import { familiesOf } from './families.js';
import { nodeMetrics } from './node-metrics.js';
import { observerMetrics } from './observer-metrics.js';
import { servicePlaneMetrics } from './service-plane-metrics.js';
import type { NodeStats, ReadinessReport } from './stats.js';
import { createWorkMetrics, type WorkMetrics } from './work-metrics.js';

export type MetricSources = {
  readonly version: string;
  stats(): Promise<NodeStats>;
  readiness(): ReadinessReport;
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
   * Returns the Prometheus text. Kernel counters are read at the scrape; if that fails they are absent and
   * `weir_stats_up` is 0.
   */
  scrape(): Promise<string>;
  /** Every metric family that a scrape can contain, by name. */
  families(): readonly MetricFamily[];
};

const MISNAMED = ['handles', 'requests', 'resources'].map((of) => `weir_nodejs_active_${of}_total`);

/** The metrics registry of the node. No label contains an address, a hostname or a rule id (D35). */
export function createMetrics(sources: MetricSources, work = createWorkMetrics()): Metrics {
  const { registry, ...done } = work;
  collectDefaultMetrics({ register: registry, prefix: 'weir_' });
  // These gauges of the library have names of counters. Their sums by type have correct names and stay.
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  const families = familiesOf(registry);
  families.gauge('weir_build_info', 'Version of this build.', 'version').set({ version: sources.version }, 1);
  const node = nodeMetrics(families);
  const dns = dnsMetrics(families);
  const servicePlane = servicePlaneMetrics(families);
  const observer = observerMetrics(families);

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

/** The fields of a metric that the library's types do not declare. */
type MetricShape = {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly labelNames: readonly string[];
};
