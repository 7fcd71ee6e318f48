import { largest, smallest } from '#arrays/extremes.js';
import type { DnsStats } from '#contracts/dns/dns-stats.js';
import type { Families } from './families.js';

/**
 * Creates the metrics of the DNS proxy. While the DNS proxy does not run, the metrics without labels are 0
 * and the metrics with labels have no samples.
 */
export function dnsMetrics({ gauge, counter }: Families) {
  const queries = counter('weir_dns_queries_total', 'DNS queries evaluated, by the verdict of the policy.', 'verdict');
  const answers = counter(
    'weir_dns_failures_total',
    'DNS queries with an error response: `nxdomain_policy`, the policy denies the name; `nxdomain_upstream`, the name does not exist; `servfail`, no upstream responded or no address could be granted.',
    'kind',
  );
  const refused = counter(
    'weir_dns_refused_total',
    'Messages that the proxy refused, records that it removed from answers, and addresses that it did not grant, by reason.',
    'reason',
  );
  const grants = counter('weir_dns_grants_total', 'Grants of addresses to hostname patterns, each renewal included.');
  const learning = gauge(
    'weir_dns_learning_wait_seconds',
    'How long recent answers waited for the grants of their addresses in the datapath, refused requests included.',
    'quantile',
  );
  const cache = counter(
    'weir_dns_cache_lookups_total',
    'DNS queries that the proxy looked up in its cache: `hit` or `miss`.',
    'outcome',
  );
  const entries = gauge('weir_dns_cache_entries', 'Answers in the cache.');
  const bytes = gauge('weir_dns_cache_bytes', 'Approximate size of the cache in bytes.');
  const upstreams = gauge('weir_dns_upstreams', 'Upstreams, by whether they have responded recently.', 'state');
  const asked = counter('weir_dns_upstream_queries_total', 'Queries sent to upstreams.');
  const silent = counter('weir_dns_upstream_timeouts_total', 'Queries that an upstream did not answer in time.');
  const latency = gauge(
    'weir_dns_upstream_latency_seconds',
    'Recent response time of the `fastest` and of the `slowest` upstream that responds.',
    'which',
  );
  const all = [latency, queries, answers, refused, grants, learning, cache, entries, bytes, upstreams, asked, silent];

  return {
    stats(stats: DnsStats | null) {
      for (const metric of all) metric.reset();
      if (stats === null) return;
      queries.inc({ verdict: 'allow' }, stats.queriesAllow);
      queries.inc({ verdict: 'deny' }, stats.queriesDeny);
      answers.inc({ kind: 'nxdomain_policy' }, stats.nxdomainPolicy);
      answers.inc({ kind: 'nxdomain_upstream' }, stats.nxdomainUpstream);
      answers.inc({ kind: 'servfail' }, stats.servfail);
      for (const [reason, count] of Object.entries(stats.refused)) refused.inc({ reason }, count);
      grants.inc(stats.grants);
      if (stats.learning !== null) {
        learning.set({ quantile: '0.5' }, stats.learning.medianMs / 1_000);
        learning.set({ quantile: '0.99' }, stats.learning.p99Ms / 1_000);
      }
      cache.inc({ outcome: 'hit' }, stats.cacheHits);
      cache.inc({ outcome: 'miss' }, stats.cacheMisses);
      entries.set(stats.cacheEntries);
      bytes.set(stats.cacheBytes);
      for (const state of ['alive', 'dead'] as const)
        upstreams.set({ state }, stats.upstreams.filter(({ alive }) => alive === (state === 'alive')).length);
      const latencies = stats.upstreams.flatMap(({ latencyMs }) => (latencyMs === null ? [] : [latencyMs / 1_000]));
      if (latencies.length > 0) {
        latency.set({ which: 'fastest' }, smallest(latencies));
        latency.set({ which: 'slowest' }, largest(latencies));
      }
      for (const { queries: sent, timeouts } of stats.upstreams) {
        asked.inc(sent);
        silent.inc(timeouts);
      }
    },
  };
}
