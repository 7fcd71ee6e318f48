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
  /** The Prometheus text. What the kernel counts is read now; unreadable, it is left out and `weir_stats_up` is 0. */
  scrape(): Promise<string>;
  /** Every family that a scrape can have, by name. */
  families(): readonly MetricFamily[];
};

const MISNAMED = ['handles', 'requests', 'resources'].map((of) => `weir_nodejs_active_${of}_total`);

/** The registry of the node. No label holds an address, a hostname or a rule id (D35). */
export function createMetrics(sources: MetricSources, work = createWorkMetrics()): Metrics {
  const { registry, ...done } = work;
  collectDefaultMetrics({ register: registry, prefix: 'weir_' });
  // Gauges by the names of counters, whose sums by type have the proper ones.
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

/** What the library keeps of a metric; its types tell less. */
type MetricShape = {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly labelNames: readonly string[];
};
