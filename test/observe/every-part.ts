import { GROUP_COUNTS } from '#contracts/datapath/datapath.js';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import type { ReadinessReport } from '#contracts/readiness.js';
import { createMetrics } from '#observe/metrics/metrics.js';
import type { NodeStats } from '#observe/metrics/stats.js';
import { SINCE, STATS } from '#test/api/fake-management.js';

const MAPS = ['program', 'flows', 'half_open', 'fragments', 'hits', 'rank_hits', 'grants', 'patterns'];
const full = (entries: number) => ({ entries, capacity: 131_072 });

/**
 * The counters of a node with all parts running. Most counters of a part have different values, so that a
 * test finds exchanged counters.
 */
export const EVERY_PART: NodeStats = {
  ...STATS,
  dataplane: STATS.dataplane && {
    ...STATS.dataplane,
    drops: Object.fromEntries(
      Object.keys(DROP_REASON)
        .filter((reason) => reason !== 'none')
        .map((reason) => [reason, { packets: 3n, bytes: 180n }]),
    ),
    maps: Object.fromEntries(MAPS.map((map, at) => [map, full(at)])),
  },
  dns: {
    queriesAllow: 1,
    queriesDeny: 2,
    nxdomainPolicy: 3,
    nxdomainUpstream: 4,
    servfail: 5,
    grants: 6,
    learning: { medianMs: 0.25, p99Ms: 2 },
    cacheHits: 7,
    cacheMisses: 8,
    cacheEntries: 9,
    cacheBytes: 10,
    refused: { answer_unasked: 11 },
    upstreams: [
      { address: '192.0.2.53:53', alive: true, queries: 12, timeouts: 13, latencyMs: 0.5 },
      { address: '192.0.2.54:53', alive: true, queries: 14, timeouts: 15, latencyMs: 2 },
      { address: '192.0.2.55:53', alive: false, queries: 16, timeouts: 17, latencyMs: null },
    ],
  },
  servicePlane: {
    allow: 20,
    deny: 21,
    audit: 22,
    intercepted: 23,
    requestsAllow: 24,
    requestsDeny: 25,
    requestsAudit: 26,
    responsesDeny: 27,
    responsesAudit: 28,
    connections: 29,
    suspended: 28,
    refused: { 'upstream_untrusted:expired': 30, no_ca: 31, server_unreachable: 32, too_many_connections: 33 },
    upstreamCaFault: 'the file contains no readable PEM certificate',
    spliceFault: 'CAP_NET_RAW missing',
  },
  observer: {
    readers: 2,
    messages: 100,
    lostReader: 3,
    lostKernel: 4,
    lostSourceShare: 5,
    lostServicePlane: 6,
    events: { denied: 60, flow_opened: 40 },
    findings: { merged: 61, entries: 7, gaps: 1, overflowed: 2 },
    flowHistory: { flows: 80, folded: 81, notRecorded: 82 },
    sinks: [{ name: 'syslog', delivered: 50, failed: 6, dropped: 7, waiting: 8 }],
  },
  kubernetes: {
    integrations: [
      { name: 'prod', state: 'silent', objects: { pods: 70, nodes: 71, namespaces: 72 }, staleSeconds: 73 },
      { name: 'lab', state: 'failed', objects: null, staleSeconds: 0 },
    ],
    members: 74,
    membersRefused: 75,
  },
  cluster: {
    ...{ isLeader: true, leader: 'node-a', members: ['node-a', 'node-b'], revision: 42, appliedRevision: 40, lag: 2 },
    ...{ connected: true, isContradicted: false, isFull: true, unreadable: 3 },
  },
};

const GROUP_TRAFFIC = {
  groups: ['office'],
  unlisted: 9,
  counts: Float64Array.from({ length: 3 * GROUP_COUNTS }, (_, at) => at + 1),
};

const CHECKS = [
  ...['dataplane_running', 'dataplane_config', 'policy_ready', 'dns_allowlist', 'service_plane'],
  ...['draining', 'cluster', 'policy_replication'],
];
const READY: ReadinessReport = {
  ready: true,
  checks: CHECKS.map((name) => ({ name, ok: true, state: 'active', detail: '', since: SINCE })),
};

/**
 * Returns the metrics of a node with all parts running, after one HTTP request, one proof, one policy write
 * and one store write.
 */
export function metricsOfEveryPart() {
  const metrics = createMetrics({
    version: '0.1.0',
    stats: async () => EVERY_PART,
    readiness: () => READY,
    groupTraffic: async () => GROUP_TRAFFIC,
  });
  metrics.served({ method: 'GET', route: '/api/v1/policies/:id', status: 200, seconds: 0.01 });
  metrics.proved({ checked: 24, complete: true });
  metrics.policyPhase('write', 0.2);
  metrics.policyWrite('written');
  metrics.storeWrite({ outcome: 'written', seconds: 0.002 });
  return metrics;
}
