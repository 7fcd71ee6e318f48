import type { Families } from './families.js';
import type { ServicePlaneStats } from './stats.js';

/**
 * Initialized with 0: if a series started at its first refusal, `increase()` in an alert would see no
 * increase.
 */
const ALERTED = ['too_many_connections', 'too_many_connections_of_source', 'upstream_untrusted:unknown_issuer'];

/** Metrics of the service plane. They are absent while it does not run. */
export function servicePlaneMetrics({ gauge, counter }: Families) {
  const connections = counter(
    'weir_tls_connections_total',
    'Connections that were redirected and decided without their requests, by verdict.',
    'verdict',
  );
  const intercepted = counter('weir_tls_intercepted_total', 'Connections whose requests were judged, or were to be.');
  const requests = counter('weir_http_requests_total', 'Requests of intercepted connections, by verdict.', 'verdict');
  const responses = counter(
    'weir_http_responses_broken_total',
    'Responses that broke the rule which let their request pass, by verdict.',
    'verdict',
  );
  const live = gauge('weir_service_plane_connections', 'Connections that the service plane has.');
  const refused = counter(
    'weir_service_plane_refused_total',
    'What the service plane did not serve, or cut, for another reason than the plain words of a rule, by reason.',
    'reason',
  );
  const stale = gauge(
    'weir_service_plane_upstream_ca_stale',
    '1 while `upstream_ca` cannot be read, and what it held before counts.',
  );
  const unjoined = gauge(
    'weir_service_plane_join_fault',
    '1 while no connection can be left to the datapath; `join_fault` in the stats says why.',
  );
  const all = [connections, intercepted, requests, responses, live, refused, stale, unjoined];

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
      stale.set(stats.upstreamCaFault === null ? 0 : 1);
      unjoined.set(stats.joinFault === null ? 0 : 1);
      for (const reason of ALERTED) refused.inc({ reason }, 0);
      for (const [reason, count] of Object.entries(stats.refused)) refused.inc({ reason }, count);
    },
  };
}
