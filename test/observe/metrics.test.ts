import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { createMetrics } from '#observe/metrics/metrics.js';
import { READY, STATS } from '#test/api/fake-management.js';
import { metricsPage } from '../../scripts/pages/metrics-page.js';
import { metricsOfEveryPart } from './every-part.js';

const samples = async (prefix: string, metrics = metricsOfEveryPart()) => {
  await metrics.scrape();
  return (await metrics.scrape()).split('\n').filter((line) => line.startsWith(prefix));
};

const metricsOfNoPart = () => createMetrics({ version: '0.1.0', stats: async () => STATS, readiness: () => READY });

describe('the Prometheus metrics', () => {
  it('the metrics of wiretap, findings and seen flows equal the counters of the observer', async () => {
    expect(await samples('weir_wiretap_')).toEqual([
      'weir_wiretap_readers 2',
      'weir_wiretap_messages_total 100',
      'weir_wiretap_lost_total{where="reader"} 3',
      'weir_wiretap_lost_total{where="kernel"} 4',
      'weir_wiretap_lost_total{where="source_share"} 5',
      'weir_wiretap_lost_total{where="service_plane"} 6',
    ]);
    expect(await samples('weir_findings_')).toEqual([
      'weir_findings_merged_total 61',
      'weir_findings_entries 7',
      'weir_findings_gaps_total 1',
      'weir_findings_overflowed_total 2',
      'weir_findings_sink_delivered_total{sink="syslog"} 50',
      'weir_findings_sink_failed_total{sink="syslog"} 6',
      'weir_findings_sink_dropped_total{sink="syslog"} 7',
      'weir_findings_sink_waiting{sink="syslog"} 8',
    ]);
    expect(await samples('weir_flow_history_')).toEqual([
      'weir_flow_history_flows 80',
      'weir_flow_history_folded 81',
      'weir_flow_history_not_recorded_total 82',
    ]);
    expect(await samples('weir_events_total')).toEqual([
      'weir_events_total{type="denied"} 60',
      'weir_events_total{type="flow_opened"} 40',
    ]);
  });

  it('the metrics of the observer have no labelled samples while the observer does not run', async () => {
    const metrics = metricsOfNoPart();
    expect(await samples('weir_wiretap_lost_total', metrics)).toEqual([]);
    expect(await samples('weir_findings_sink_', metrics)).toEqual([]);
  });

  it('the metrics of the service plane equal its counters, and are absent while the service plane does not run', async () => {
    expect(await samples('weir_tls_')).toEqual([
      'weir_tls_connections_total{verdict="allow"} 20',
      'weir_tls_connections_total{verdict="deny"} 21',
      'weir_tls_connections_total{verdict="audit"} 22',
      'weir_tls_intercepted_total 23',
    ]);
    expect(await samples('weir_http_')).toEqual([
      'weir_http_requests_total{verdict="allow"} 24',
      'weir_http_requests_total{verdict="deny"} 25',
      'weir_http_requests_total{verdict="audit"} 26',
      'weir_http_responses_broken_total{verdict="deny"} 27',
      'weir_http_responses_broken_total{verdict="audit"} 28',
    ]);
    expect(await samples('weir_service_plane_')).toEqual([
      'weir_service_plane_connections 29',
      'weir_service_plane_suspended_connections 28',
      'weir_service_plane_refused_total{reason="too_many_connections"} 33',
      'weir_service_plane_refused_total{reason="too_many_connections_of_source"} 0',
      'weir_service_plane_refused_total{reason="upstream_untrusted:unknown_issuer"} 0',
      'weir_service_plane_refused_total{reason="upstream_untrusted:expired"} 30',
      'weir_service_plane_refused_total{reason="no_ca"} 31',
      'weir_service_plane_refused_total{reason="server_unreachable"} 32',
      'weir_service_plane_upstream_ca_stale 1',
      'weir_service_plane_join_fault 1',
    ]);
    const metrics = metricsOfNoPart();
    expect(await samples('weir_http_requests_total', metrics)).toEqual([]);
  });

  it('the metrics of the cluster have the values that this node knows, and are 0 without a cluster', async () => {
    expect(await samples('weir_cluster_')).toEqual([
      'weir_cluster_connected 1',
      'weir_cluster_leader 1',
      'weir_cluster_has_leader 1',
      'weir_cluster_members 2',
      'weir_cluster_revision 42',
      'weir_cluster_applied_revision 40',
      'weir_cluster_lag_revisions 2',
      'weir_cluster_contradicted 0',
      'weir_cluster_etcd_full 1',
      'weir_cluster_unreadable_values 3',
    ]);
    const metrics = metricsOfNoPart();
    expect((await samples('weir_cluster_', metrics)).filter((line) => !line.endsWith(' 0'))).toEqual([]);
  });

  it('the metrics of the sweep of the flow table give its duration and age in seconds', async () => {
    expect(await samples('weir_dataplane_sweep_')).toEqual([
      'weir_dataplane_sweep_duration_seconds 0.00025',
      'weir_dataplane_sweep_age_seconds 0.5',
    ]);
    expect(await samples('weir_dataplane_half_open_flows')).toEqual(['weir_dataplane_half_open_flows 1']);
  });

  it('the metrics of DNS upstreams give the latency of the fastest and of the slowest upstream, without upstream addresses', async () => {
    expect(await samples('weir_dns_upstream_latency_seconds')).toEqual([
      'weir_dns_upstream_latency_seconds{which="fastest"} 0.0005',
      'weir_dns_upstream_latency_seconds{which="slowest"} 0.002',
    ]);
  });

  it('the metrics of source groups give packets and bytes by verdict, and have no samples while the node does not count them', async () => {
    expect(await samples('weir_source_group_')).toEqual([
      'weir_source_group_unlisted 9',
      ...['packets', 'bytes'].flatMap((what, at) => [
        `weir_source_group_${what}_total{scope="group",source_group="office",verdict="allow"} ${1 + at}`,
        `weir_source_group_${what}_total{scope="group",source_group="office",verdict="deny"} ${3 + at}`,
        `weir_source_group_${what}_total{scope="group",source_group="office",verdict="audit"} ${5 + at}`,
        `weir_source_group_${what}_total{scope="other_groups",source_group="",verdict="allow"} ${7 + at}`,
        `weir_source_group_${what}_total{scope="other_groups",source_group="",verdict="deny"} ${9 + at}`,
        `weir_source_group_${what}_total{scope="other_groups",source_group="",verdict="audit"} ${11 + at}`,
        `weir_source_group_${what}_total{scope="policy_default",source_group="",verdict="allow"} ${13 + at}`,
        `weir_source_group_${what}_total{scope="policy_default",source_group="",verdict="deny"} ${15 + at}`,
        `weir_source_group_${what}_total{scope="policy_default",source_group="",verdict="audit"} ${17 + at}`,
      ]),
    ]);
    const metrics = metricsOfNoPart();
    expect(await samples('weir_source_group_', metrics)).toEqual(['weir_source_group_unlisted 0']);
  });

  it('the metrics of policy writes and store writes count them by outcome, and give the duration of each phase', async () => {
    const metrics = metricsOfNoPart();
    metrics.policyWrite('invalid_policy');
    metrics.policyPhase('compile', 0.04);
    metrics.policyPhase('compile', 0.02);
    metrics.storeWrite({ outcome: 'store_no_space', seconds: 0.5 });
    expect(await samples('weir_policy_writes_total', metrics)).toEqual([
      'weir_policy_writes_total{outcome="written"} 0',
      'weir_policy_writes_total{outcome="deleted"} 0',
      'weir_policy_writes_total{outcome="checked"} 0',
      'weir_policy_writes_total{outcome="invalid_policy"} 1',
    ]);
    expect(await samples('weir_policy_phase_duration_seconds_sum', metrics)).toEqual([
      'weir_policy_phase_duration_seconds_sum{phase="write"} 0',
      'weir_policy_phase_duration_seconds_sum{phase="compile"} 0.06',
      'weir_policy_phase_duration_seconds_sum{phase="stage"} 0',
      'weir_policy_phase_duration_seconds_sum{phase="flip"} 0',
      'weir_policy_phase_duration_seconds_sum{phase="locate"} 0',
      'weir_policy_phase_duration_seconds_sum{phase="explain"} 0',
    ]);
    expect(await samples('weir_store_writes_total', metrics)).toEqual([
      'weir_store_writes_total{outcome="written"} 0',
      'weir_store_writes_total{outcome="store_no_space"} 1',
      'weir_store_writes_total{outcome="store_unavailable"} 0',
      'weir_store_writes_total{outcome="store_read_only"} 0',
    ]);
    expect(await samples('weir_store_write_duration_seconds_sum', metrics)).toEqual([
      'weir_store_write_duration_seconds_sum 0.5',
    ]);
  });

  it('the metrics have only known labels, and no label value that is an address', async () => {
    const metrics = metricsOfEveryPart();
    const labels = new Set(metrics.families().flatMap((family) => family.labels));
    const own = [
      ...[
        'check',
        'family',
        'kind',
        'map',
        'method',
        'outcome',
        'integration',
        'phase',
        'quantile',
        'reason',
        'route',
        'resource',
        'scope',
        'sink',
        'source_group',
        'state',
      ],
      ...['status', 'type', 'verdict', 'version', 'way', 'where', 'which'],
    ];
    const ofProcess = ['kind', 'major', 'minor', 'patch', 'space', 'type', 'version'];
    expect([...labels].filter((label) => ![...own, ...ofProcess].includes(label))).toEqual([]);
    const lines = (await metrics.scrape()).split('\n').filter((line) => !line.startsWith('#'));
    expect(lines.filter((line) => /\d+\.\d+\.\d+\.\d+|192\.0\.2|:53/.test(line))).toEqual([]);
    expect(lines.filter((line) => line !== '' && !line.startsWith('weir_'))).toEqual([]);
  });

  it('a metric is a counter if and only if its name ends in _total', () => {
    const wrong = metricsOfEveryPart()
      .families()
      .filter(({ name, type }) => (type === 'counter') !== name.endsWith('_total'));
    expect(wrong).toEqual([]);
  });

  it('the metrics of Kubernetes integrations show the state, objects and age of each integration, and the number of members in the kernel', async () => {
    const lines = (await metricsOfEveryPart().scrape()).split('\n');
    const found = lines.filter((line) => line.startsWith('weir_kubernetes_') && !line.endsWith('} 0'));
    expect(found.sort()).toEqual([
      'weir_kubernetes_integration_state{integration="lab",state="failed"} 1',
      'weir_kubernetes_integration_state{integration="prod",state="silent"} 1',
      'weir_kubernetes_members 74',
      'weir_kubernetes_members_refused 75',
      'weir_kubernetes_objects{integration="prod",resource="namespaces"} 72',
      'weir_kubernetes_objects{integration="prod",resource="nodes"} 71',
      'weir_kubernetes_objects{integration="prod",resource="pods"} 70',
      'weir_kubernetes_stale_seconds{integration="prod"} 73',
    ]);
    const states = lines.filter((line) => line.startsWith('weir_kubernetes_integration_state{integration="prod"'));
    expect(states).toHaveLength(9);
  });

  it('docs/metrics.md lists all metrics', async () => {
    const page = await readFile(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
    expect(page, 'run: npm run docs').toBe(metricsPage(metricsOfEveryPart().families()));
  });
});
