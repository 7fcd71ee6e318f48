import type { ReadinessReport } from '#contracts/readiness.js';
import type { Families } from './families.js';
import type { NodeStats } from './stats.js';

/**
 * Creates the metrics of readiness and of the datapath. If the datapath's counters cannot be read,
 * `weir_stats_up` is 0. The other metrics without labels then are 0, and those with labels have no samples.
 */
export function nodeMetrics({ gauge, counter }: Families) {
  const ready = gauge('weir_ready', '1 while every readiness check passes.');
  const check = gauge('weir_readiness_check', '1 while this readiness check passes.', 'check');
  const up = gauge('weir_stats_up', '1 if the node could read its counters for this scrape.');
  const generation = gauge('weir_policy_generation', 'Generation of the active policy.');
  const direct = gauge(
    'weir_dataplane_direct',
    '1 while passed packets are forwarded directly to an interface, 0 while the network stack forwards them. IPv6: with `dataplane.ipv6: enforce`.',
    'family',
  );
  const flows = gauge('weir_dataplane_flows', 'Flows in the flow table.');
  const halfOpen = gauge(
    'weir_dataplane_half_open_flows',
    'Flows whose first packet has no reply yet, and suspended flows.',
  );
  const sweep = gauge('weir_dataplane_sweep_duration_seconds', 'Duration of the last sweep of the flow tables.');
  const sweepAge = gauge('weir_dataplane_sweep_age_seconds', 'Time since the last sweep of the flow tables.');
  const opened = counter('weir_dataplane_flows_opened_total', 'Flows opened.');
  const closed = counter('weir_dataplane_flows_closed_total', 'Flows closed or suspended.');
  const suspended = counter(
    'weir_dataplane_flows_suspended_total',
    'Open flows that a later policy denied and suspended.',
  );
  const resumed = counter('weir_dataplane_flows_resumed_total', 'Suspended flows that a later policy let go on.');
  const refused = counter(
    'weir_dataplane_grants_refused_total',
    'Addresses that were not learned because the grant table was full. They stay denied.',
  );
  const packets = counter('weir_dataplane_packets_total', 'Packets evaluated, by verdict.', 'verdict');
  const bytes = counter('weir_dataplane_bytes_total', 'Bytes of evaluated packets, by verdict.', 'verdict');
  const inspected = counter(
    'weir_dataplane_inspected_packets_total',
    'Packets of inspected connections: `handed` to the service plane, or `joined`: forwarded in the kernel after splicing.',
    'way',
  );
  const inspectedBytes = counter(
    'weir_dataplane_inspected_bytes_total',
    'Bytes of packets of inspected connections, by `way` as above.',
    'way',
  );
  const passedUnclassified = counter(
    'weir_dataplane_non_ipv4_packets_total',
    'Packets of forwarded IPv6 that passed because of `dataplane.ipv6`, and of protocols other than IP and ARP that passed because of `dataplane.non_ipv4`.',
  );
  const passedUnclassifiedBytes = counter(
    'weir_dataplane_non_ipv4_bytes_total',
    'Bytes of packets that passed because of `dataplane.ipv6` or `dataplane.non_ipv4`.',
  );
  const dnsUnroutable = counter(
    'weir_dataplane_dns_unroutable_packets_total',
    'DNS queries that `dns.transparent` did not divert, because their destination has neither a route nor a socket of the node. The kernel dropped them.',
  );
  const drops = counter('weir_dataplane_drops_total', 'Packets dropped, by drop reason.', 'reason');
  const dropBytes = counter('weir_dataplane_drop_bytes_total', 'Bytes dropped, by drop reason.', 'reason');
  const eventsSent = counter('weir_events_sent_total', 'Events that the datapath sent, whether or not they were read.');
  const eventsLost = counter(
    'weir_events_lost_total',
    'Events of the dataplane that were lost: `ring`, the ring buffer was full; `source_share`, the source exceeded its share of events.',
    'where',
  );
  const entries = gauge('weir_dataplane_map_entries', 'Entries in a map of the dataplane.', 'map');
  const capacity = gauge('weir_dataplane_map_capacity', 'Entries that a map of the dataplane can hold.', 'map');
  const ofDataplane = [
    direct,
    flows,
    halfOpen,
    sweep,
    sweepAge,
    opened,
    closed,
    suspended,
    resumed,
    refused,
    packets,
    bytes,
    inspected,
    inspectedBytes,
    passedUnclassified,
    passedUnclassifiedBytes,
    dnsUnroutable,
    drops,
    dropBytes,
    eventsSent,
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
      for (const [family, now] of [
        ['ipv4', dataplane.forwarding],
        ['ipv6', dataplane.ipv6Forwarding],
      ] as const)
        if (now !== null) direct.set({ family }, now.way === 'direct' ? 1 : 0);
      flows.set(dataplane.activeFlows);
      halfOpen.set(dataplane.halfOpenFlows);
      sweep.set(dataplane.sweep.tookMs / 1_000);
      sweepAge.set(dataplane.sweep.agoMs / 1_000);
      opened.inc(Number(dataplane.flowsOpened));
      closed.inc(Number(dataplane.flowsClosed));
      suspended.inc(Number(dataplane.flowsSuspended));
      resumed.inc(Number(dataplane.flowsResumed));
      refused.inc(dataplane.grantsRefused);
      for (const [verdict, counted] of Object.entries(dataplane.verdicts)) {
        packets.inc({ verdict }, Number(counted.packets));
        bytes.inc({ verdict }, Number(counted.bytes));
      }
      for (const [way, counted] of Object.entries(dataplane.inspected)) {
        inspected.inc({ way }, Number(counted.packets));
        inspectedBytes.inc({ way }, Number(counted.bytes));
      }
      passedUnclassified.inc(Number(dataplane.nonIpv4Passed.packets));
      passedUnclassifiedBytes.inc(Number(dataplane.nonIpv4Passed.bytes));
      dnsUnroutable.inc(Number(dataplane.dnsUnroutable.packets));
      for (const [reason, counted] of Object.entries(dataplane.drops)) {
        drops.inc({ reason }, Number(counted.packets));
        dropBytes.inc({ reason }, Number(counted.bytes));
      }
      eventsSent.inc(Number(dataplane.events.sent));
      eventsLost.inc({ where: 'ring' }, Number(dataplane.events.lost));
      eventsLost.inc({ where: 'source_share' }, Number(dataplane.events.suppressed));
      for (const [map, fill] of Object.entries(dataplane.maps)) {
        entries.set({ map }, fill.entries);
        capacity.set({ map }, fill.capacity);
      }
    },
  };
}
