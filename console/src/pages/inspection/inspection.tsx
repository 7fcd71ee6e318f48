import { full, short } from '../../format.js';
import { node } from '../../node.js';
import { Bars } from '../../ui/bars.js';
import { Empty, Panel, StateMark } from '../../ui/parts.js';
import { ReadOnlyNote } from '../../ui/write.js';
import { InterceptCa } from './intercept-ca.js';

/**
 * The page Inspection: shows the connections whose TLS and HTTP the node inspects, the refused ones, and the
 * CA of the node.
 */
export function Inspection() {
  const stats = node.report.value?.stats;
  const check = node.report.value?.readiness.checks.find(({ name }) => name === 'service_plane');
  return (
    <>
      <h1>Inspection</h1>
      {check !== undefined && (
        <p>
          <span class={`word ${check.ok ? '' : 'is-deny'}`}>
            <StateMark ok={check.ok} word="" /> {check.detail}
          </span>
        </p>
      )}
      <ReadOnlyNote />
      {stats !== undefined && (
        <>
          <Faults upstream={stats.tls.upstream_ca_fault} join={stats.tls.join_fault} />
          <div class="cards">
            <Count title="Connections now" value={stats.tls.connections}>
              {stats.tls.suspended > 0
                ? `${full(stats.tls.suspended)} are suspended: a later policy denies them`
                : 'none is suspended by a later policy'}
            </Count>
            <Count title="TLS, by hello or certificate" value={stats.tls.allow + stats.tls.deny + stats.tls.audit}>
              {short(stats.tls.allow)} allowed, {short(stats.tls.deny)} denied, {short(stats.tls.audit)} would be denied
            </Count>
            <Count title="Intercepted connections" value={stats.tls.intercepted}>
              decrypted with the intercept CA
            </Count>
            <Count title="HTTP requests" value={stats.http.allow + stats.http.deny + stats.http.audit}>
              {short(stats.http.allow)} allowed, {short(stats.http.deny)} denied, {short(stats.http.audit)} would be
              denied
            </Count>
          </div>
        </>
      )}
      <div class="columns even">
        <InterceptCa />
        {stats !== undefined && <Refused refused={stats.tls.refused} http={stats.http} />}
      </div>
    </>
  );
}

type CountProps = { readonly title: string; readonly value: number; readonly children: preact.ComponentChildren };

function Count({ title, value, children }: CountProps) {
  return (
    <section class="panel card">
      <h2>{title}</h2>
      <strong title={full(value)}>{short(value)}</strong>
      <small>{children}</small>
    </section>
  );
}

function Faults({ upstream, join }: { readonly upstream: string | null; readonly join: string | null }) {
  if (upstream === null && join === null) return null;
  return (
    <div class="stack">
      {upstream !== null && (
        <div class="failure" role="alert">
          <strong>The file of upstream_ca cannot be read:</strong> {upstream}. The certificates that were read before
          stay in use.
        </div>
      )}
      {join !== null && (
        <div class="failure" role="alert">
          <strong>Inspected connections are not offloaded:</strong> {join}. They pass through the sockets of the node,
          at a higher cost.
        </div>
      )}
    </div>
  );
}

/** Texts for refusal reasons that need an explanation. Other reasons are shown in the words of the node. */
const REASONS: Readonly<Record<string, string>> = {
  no_ca: 'no intercept CA',
  no_policy: 'no policy in force',
  idle: 'idle for too long',
  head_late: 'the head of a request was late',
  client_handshake: 'TLS handshake of the client (it may not trust the intercept CA)',
  client_http2: 'HTTP/2 of the client',
  server_handshake: 'TLS handshake of the server',
  server_unreachable: 'server not reachable',
  cut_by_policy: 'closed by a later policy',
  suspended_by_policy: 'suspended by a later policy',
  no_common_protocol: 'no common protocol',
  rapid_reset: 'rapid resets of HTTP/2',
  too_many_connections: 'too many connections',
  too_many_connections_of_source: 'too many connections of one source',
};

const reasonText = (reason: string): string =>
  REASONS[reason] ??
  reason
    .replace(/^upstream_untrusted:/, 'server is not trusted: ')
    .replace(/^request_/, 'request: ')
    .replace(/^response_/, 'response: ')
    .replaceAll('_', ' ');

type RefusedProps = {
  readonly refused: Readonly<Record<string, number>>;
  readonly http: { readonly responses_deny: number; readonly responses_audit: number };
};

function Refused({ refused, http }: RefusedProps) {
  const all = [
    ...Object.entries(refused).map(([reason, count]) => [reasonText(reason), count] as const),
    ['a response broke the rule of its request', http.responses_deny] as const,
    ['a response would have broken it (audit)', http.responses_audit] as const,
  ]
    .filter(([, count]) => count > 0)
    .toSorted(([, one], [, other]) => other - one);
  return (
    <Panel title="Refused for another reason than a rule">
      {all.length === 0 ? (
        <Empty>No connection and no request since the node started. What a rule denies is on the page Findings.</Empty>
      ) : (
        <Bars counts={all} />
      )}
    </Panel>
  );
}
