import type { ServicePlaneStats } from '#contracts/service-plane/service-plane-stats.js';
import type { Families } from './families.js';

/**
 * Refusal reasons for which alerts exist. Their series are initialized with 0. If a series started at its
 * first refusal, the function `increase()` in a Prometheus alert would miss that refusal.
 */
const ALERTED = ['too_many_connections', 'too_many_connections_of_source', 'upstream_untrusted:unknown_issuer'];

/**
 * Creates the metrics of the service plane (TLS and HTTP inspection). While the service plane does not run,
 * the metrics without labels are 0 and the metrics with labels have no samples.
 */
export function servicePlaneMetrics({ gauge, counter }: Families) {
  const connections = counter(
    'weir_tls_connections_total',
    'Redirected connections that were decided without reading their requests, by verdict.',
    'verdict',
  );
  const intercepted = counter(
    'weir_tls_intercepted_total',
    'Connections that were intercepted so that their requests can be evaluated.',
  );
  const requests = counter('weir_http_requests_total', 'Requests of intercepted connections, by verdict.', 'verdict');
  const responses = counter(
    'weir_http_responses_broken_total',
    'Responses that violated the rule that had allowed their request, by verdict.',
    'verdict',
  );
  const live = gauge('weir_service_plane_connections', 'Current connections of the service plane.');
  const suspended = gauge(
    'weir_service_plane_suspended_connections',
    'Current connections of the service plane that a later policy denies, and that pass nothing.',
  );
  const refused = counter(
    'weir_service_plane_refused_total',
    'Connections and requests that the service plane refused or closed for a reason other than the verdict of a rule, by reason.',
    'reason',
  );
  const stale = gauge(
    'weir_service_plane_upstream_ca_stale',
    '1 while `upstream_ca` cannot be read; the certificates that were read before stay in use.',
  );
  const offloadFaulty = gauge(
    'weir_service_plane_join_fault',
    '1 while the datapath cannot forward spliced connections itself (splicing offload); `join_fault` in the stats gives the reason.',
  );
  const all = [connections, intercepted, requests, responses, live, suspended, refused, stale, offloadFaulty];

  return {
    stats(stats: ServicePlaneStats | null) {
      for (const metric of all) metric.reset();
      if (stats === null) return;
      connections.inc({ verdict: 'allow' }, stats.allow);
      connections.inc({ verdict: 'deny' }, stats.deny);
      connections.inc({ verdict: 'audit' }, stats.audit);
      intercepted.inc(stats.intercepted);
      requests.inc({ verdict: 'allow' }, stats.requestsAllow);
      requests.inc({ verdict: 'deny' }, stats.requestsDeny);
      requests.inc({ verdict: 'audit' }, stats.requestsAudit);
      responses.inc({ verdict: 'deny' }, stats.responsesDeny);
      responses.inc({ verdict: 'audit' }, stats.responsesAudit);
      live.set(stats.connections);
      suspended.set(stats.suspended);
      stale.set(stats.upstreamCaFault === null ? 0 : 1);
      offloadFaulty.set(stats.spliceFault === null ? 0 : 1);
      for (const reason of ALERTED) refused.inc({ reason }, 0);
      for (const [reason, count] of Object.entries(stats.refused)) refused.inc({ reason }, count);
    },
  };
}
