import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { dnsMetrics } from './dns-metrics.js';
import type { NodeStats, ReadinessReport } from './stats.js';

export type MetricSources = {
  readonly version: string;
  stats(): Promise<NodeStats>;
  readiness(): ReadinessReport;
};

type ServedRequest = {
  readonly method: string;
  /** The route's pattern, never the path that was asked for. */
  readonly route: string;
  readonly status: number;
  readonly seconds: number;
};

export type Metrics = {
  readonly contentType: string;
  served(request: ServedRequest): void;
  /** A compiled policy was proved before its activation (B5), or did not hold. */
  proved(proof: { readonly checked: number; readonly complete: boolean }): void;
  disproved(): void;
  /** Events of the kernel that were read, by type. */
  observed(events: Readonly<Record<string, number>>): void;
  /** The Prometheus text. What the kernel counts is read now; unreadable, it is left out and `weir_stats_up` is 0. */
  scrape(): Promise<string>;
};

/** The registry of the node. No label holds an address, a hostname or a rule id (D35). */
export function createMetrics(sources: MetricSources): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry, prefix: 'weir_' });

  new Gauge({ name: 'weir_build_info', help: 'Version of this build.', labelNames: ['version'], registers }).set(
    { version: sources.version },
    1,
  );
  const requests = new Counter({
    name: 'weir_http_requests_total',
    help: 'Requests answered by the management API.',
    labelNames: ['route', 'method', 'status'],
    registers,
  });
  const seconds = new Histogram({
    name: 'weir_http_request_duration_seconds',
    help: 'Time from the request line to the last byte of the answer.',
    labelNames: ['route', 'method'],
    buckets: [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10],
    registers,
  });
  const proofs = new Counter({
    name: 'weir_policy_proofs_total',
    help: 'Compiled policies that were checked before they came into force, by outcome.',
    labelNames: ['outcome'],
    registers,
  });
  for (const outcome of ['passed', 'failed']) proofs.inc({ outcome }, 0);
  const proofPackets = new Counter({
    name: 'weir_policy_proof_packets_total',
    help: 'Packets that were judged by compiled policies as those say, in proofs that passed.',
    registers,
  });
  const proofComplete = new Gauge({
    name: 'weir_policy_proof_complete',
    help: '1 when the last proof that passed had a packet of every class of its policy.',
    registers,
  });
  const events = new Counter({
    name: 'weir_events_total',
    help: 'Events of the dataplane that were read, by type.',
    labelNames: ['type'],
    registers,
  });
  const node = nodeMetrics(registers);
  const dns = dnsMetrics(registers);

  return {
    contentType: registry.contentType,
    served(request) {
      const { route, method } = request;
      requests.inc({ route, method, status: `${Math.floor(request.status / 100)}xx` });
      seconds.observe({ route, method }, request.seconds);
    },
    proved({ checked, complete }) {
      proofs.inc({ outcome: 'passed' });
      proofPackets.inc(checked);
      proofComplete.set(complete ? 1 : 0);
    },
    disproved() {
      proofs.inc({ outcome: 'failed' });
    },
    observed(counts) {
      for (const [type, count] of Object.entries(counts)) events.inc({ type }, count);
    },
    async scrape() {
      node.readiness(sources.readiness());
      const stats = await sources.stats().catch(() => null);
      node.stats(stats);
      dns.stats(stats?.dns ?? null);
      return registry.metrics();
    },
  };
}

function nodeMetrics(registers: Registry[]) {
  const gauge = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Gauge<L>({ name, help, labelNames, registers });
  const counter = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Counter<L>({ name, help, labelNames, registers });

  const ready = gauge('weir_ready', '1 while every readiness check passes.');
  const check = gauge('weir_readiness_check', '1 while this readiness check passes.', 'check');
  const up = gauge('weir_stats_up', '1 when the counters of the node could be read for this scrape.');
  const generation = gauge('weir_policy_generation', 'Generation of the policy in force.');
  const direct = gauge(
    'weir_dataplane_direct',
    '1 while packets that pass are sent at once, 0 while they go by the stack.',
  );
  const flows = gauge('weir_dataplane_flows', 'Flows in the flow table.');
  const opened = counter('weir_dataplane_flows_opened_total', 'Flows opened.');
  const closed = counter('weir_dataplane_flows_closed_total', 'Flows closed.');
  const refused = counter(
    'weir_dataplane_grants_refused_total',
    'Addresses that were not learned for want of room, and stay denied.',
  );
  const packets = counter('weir_dataplane_packets_total', 'Packets judged, by verdict.', 'verdict');
  const bytes = counter('weir_dataplane_bytes_total', 'Bytes judged, by verdict.', 'verdict');
  const drops = counter('weir_dataplane_drops_total', 'Packets dropped, by drop reason.', 'reason');
  const dropBytes = counter('weir_dataplane_drop_bytes_total', 'Bytes dropped, by drop reason.', 'reason');
  const eventsLost = counter(
    'weir_events_lost_total',
    'Events of the dataplane that were not sent: `ring`, the reader was too slow; `source_share`, the source had had its share.',
    'where',
  );
  const entries = gauge('weir_dataplane_map_entries', 'Entries in a map of the dataplane.', 'map');
  const capacity = gauge('weir_dataplane_map_capacity', 'Entries that a map of the dataplane can hold.', 'map');
  const ofDataplane = [
    direct,
    flows,
    opened,
    closed,
    refused,
    packets,
    bytes,
    drops,
    dropBytes,
    eventsLost,
    entries,
    capacity,
  ];

  return {
    readiness(report: ReadinessReport) {
      ready.set(report.ready ? 1 : 0);
      check.reset();
      for (const { name, ok } of report.checks) check.set({ check: name }, ok ? 1 : 0);
    },
    stats(stats: NodeStats | null) {
      up.set(stats === null ? 0 : 1);
      for (const metric of ofDataplane) metric.reset();
      if (stats === null) return;
      generation.set(stats.generation);
      const { dataplane } = stats;
      if (dataplane === null) return;
      direct.set(dataplane.forwarding.way === 'direct' ? 1 : 0);
      flows.set(dataplane.activeFlows);
      opened.inc(Number(dataplane.flowsOpened));
      closed.inc(Number(dataplane.flowsClosed));
      refused.inc(dataplane.grantsRefused);
      for (const [verdict, counted] of Object.entries(dataplane.verdicts)) {
        packets.inc({ verdict }, Number(counted.packets));
        bytes.inc({ verdict }, Number(counted.bytes));
      }
      for (const [reason, counted] of Object.entries(dataplane.drops)) {
        drops.inc({ reason }, Number(counted.packets));
        dropBytes.inc({ reason }, Number(counted.bytes));
      }
      eventsLost.inc({ where: 'ring' }, Number(dataplane.events.lost));
      eventsLost.inc({ where: 'source_share' }, Number(dataplane.events.suppressed));
      for (const [map, fill] of Object.entries(dataplane.maps)) {
        entries.set({ map }, fill.entries);
        capacity.set({ map }, fill.capacity);
      }
    },
  };
}
