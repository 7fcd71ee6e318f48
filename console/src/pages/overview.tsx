import { useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';
import { api, bodyOf, type Schemas } from '../api/client.js';
import { usePolled } from '../api/polled.js';
import type { NodeReport } from '../charts/node.chart.js';
import { full, short } from '../format.js';
import { node } from '../node.js';
import { addressOf } from '../router.js';
import { Bars } from '../ui/bars.js';
import { Empty, Failure, Panel, StateMark } from '../ui/parts.js';
import { TableHead } from '../ui/table-head.js';
import { Ago, Lasting } from '../ui/time.js';

const UNUSED_SHOWN = 8;

/** The page Overview: shows whether the node enforces its policy, and each problem with its start time. */
export function Overview() {
  const policies = usePolled((signal) => bodyOf(api.GET('/api/v1/policies', { signal })), 10_000);
  const hits = usePolled((signal) => bodyOf(api.GET('/api/v1/policy/hits', { signal })), 10_000);
  const mode = usePolled((signal) => bodyOf(api.GET('/api/v1/settings/performance-mode', { signal })), 10_000);
  const report = node.report.value;
  const active = policies.data.value?.items.find((each) => each.active);
  return (
    <>
      <h1>Overview</h1>
      <Failure failure={policies.failure.value ?? hits.failure.value} />
      {mode.data.value?.enabled === false && (
        <div class="bar pending" role="status">
          <span>
            <strong>Performance mode is off.</strong> The node enforces its policy, and shows neither live traffic nor
            findings.
          </span>
          <a class="button" href={addressOf('settings')}>
            What is dark now?
          </a>
        </div>
      )}
      <div class="cards">
        <Card title="Policy in force" href={addressOf('policy')}>
          {active === undefined ? (
            <strong>none</strong>
          ) : (
            <>
              <strong>{active.name ?? 'unnamed'}</strong>
              <small>
                {active.mode}, revision {active.revision} by {active.updated_by}, <Ago at={active.updated_at} />
              </small>
            </>
          )}
        </Card>
        <Traffic report={report} />
      </div>
      <Chart />
      <div class="columns">
        <Checks report={report} />
        <div class="stack">
          <Drops report={report} />
          <Unused hits={hits.data.value} />
        </div>
      </div>
    </>
  );
}

/** Loads the chart and its library after the first paint of the page. */
function Chart() {
  const Loaded = useSignal<ComponentType | null>(null);
  useEffect(() => {
    void import('./overview-chart.js').then(({ OverviewChart }) => {
      Loaded.value = OverviewChart;
    });
  }, []);
  return Loaded.value === null ? <div class="chart-wait" /> : <Loaded.value />;
}

type CardProps = { readonly title: string; readonly href?: string; readonly children: preact.ComponentChildren };

function Card({ title, href, children }: CardProps) {
  return (
    <section class="panel card">
      <h2>{href === undefined ? title : <a href={href}>{title}</a>}</h2>
      {children}
    </section>
  );
}

type Counters = NodeReport['stats']['dataplane']['packets'];

/** Returns the packets per second between the last two reports of the node. */
function useRates(report: NodeReport | null): Counters | null {
  const rates = useSignal<Counters | null>(null);
  const before = useSignal<{ readonly at: number; readonly packets: Counters } | null>(null);
  useEffect(() => {
    if (report === null) return;
    const { packets } = report.stats.dataplane;
    const at = performance.now();
    const last = before.peek();
    if (last !== null) {
      const seconds = (at - last.at) / 1_000;
      const rate = (name: keyof Counters) => Math.max(0, packets[name] - last.packets[name]) / seconds;
      rates.value = { allow: rate('allow'), deny: rate('deny'), audit: rate('audit') };
    }
    before.value = { at, packets };
  }, [report]);
  return rates.value;
}

function Traffic({ report }: { readonly report: NodeReport | null }) {
  const rates = useRates(report);
  const { dataplane } = report?.stats ?? {};
  const flows = dataplane?.maps.flows;
  const shown = (value: number | undefined) =>
    value === undefined ? '…' : value < 100 ? value.toFixed(1) : short(value);
  return (
    <>
      <Card title="Flows now" href={addressOf('traffic')}>
        <strong>{dataplane === undefined ? '…' : full(dataplane.active_flows)}</strong>
        {flows !== undefined && <small>of {short(flows.capacity)} that fit</small>}
      </Card>
      <Card title="Denied a second" href={addressOf('traffic')}>
        <strong class={rates !== null && rates.deny > 0 ? 'is-deny' : ''}>{shown(rates?.deny)}</strong>
        <small>
          {dataplane === undefined ? '' : `${short(dataplane.packets.deny)} packets since the node started`}
        </small>
      </Card>
      <Card title="Would be denied a second" href={addressOf('traffic')}>
        <strong class={rates !== null && rates.audit > 0 ? 'is-audit' : ''}>{shown(rates?.audit)}</strong>
        <small>passed, because the rule or its policy is in audit mode</small>
      </Card>
    </>
  );
}

function Checks({ report }: { readonly report: NodeReport | null }) {
  return (
    <Panel title="Is it well?">
      {report === null ? (
        <p aria-busy="true">…</p>
      ) : (
        <table class="checks">
          <TableHead isHidden columns={['State', 'Check', 'Detail', 'Since']} />
          <tbody>
            {report.readiness.checks.map(({ name, ok, detail, since }) => (
              <tr key={name} class={ok ? '' : 'bad'}>
                <td>
                  <StateMark ok={ok} word={ok ? 'passes' : 'fails'} />
                </td>
                <th scope="row">{CHECKS[name] ?? name}</th>
                <td class="muted">{detail}</td>
                <td class="number">
                  <Lasting at={since} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

/** Display texts for the names of the readiness checks. */
export const CHECKS: Readonly<Record<string, string>> = {
  dataplane_running: 'Datapath',
  dataplane_config: 'Interfaces',
  policy_ready: 'Policy',
  dns_allowlist: 'Names',
  service_plane: 'TLS inspection',
  draining: 'Shutdown',
  cluster: 'Cluster',
  policy_replication: 'Replication',
};

function Drops({ report }: { readonly report: NodeReport | null }) {
  const drops = Object.entries(report?.stats.dataplane.drops ?? {})
    .filter(([, count]) => count > 0)
    .map(([reason, count]) => [reason.replaceAll('_', ' '), count] as const)
    .toSorted(([, one], [, other]) => other - one)
    .slice(0, 8);
  return (
    <Panel title="Dropped packets">
      {drops.length === 0 ? <Empty>The node has dropped no packet since it started.</Empty> : <Bars counts={drops} />}
    </Panel>
  );
}

function Unused({ hits }: { readonly hits: Schemas['Hits'] | null }) {
  const unused = hits?.items.filter((hit) => hit.unused && hit.decided_by === 'rule') ?? [];
  return (
    <Panel title="Rules that nothing uses">
      {hits === null ? (
        <p aria-busy="true">…</p>
      ) : unused.length === 0 ? (
        <Empty>Each rule has decided at least one packet since the counters began.</Empty>
      ) : (
        <ul class="plain-list">
          {unused.slice(0, UNUSED_SHOWN).map(({ source_group, rule, unused_since }) => (
            <li key={`${source_group} ${rule}`}>
              <a href={addressOf('policy', { group: source_group ?? '', rule: rule ?? '' })}>
                {source_group} / {rule}
              </a>
              {unused_since !== null && (
                <span class="muted">
                  {' '}
                  for <Lasting at={unused_since} />
                </span>
              )}
            </li>
          ))}
          {unused.length > UNUSED_SHOWN && (
            <li>
              <a href={addressOf('policy', { show: 'unused' })}>and {full(unused.length - UNUSED_SHOWN)} more</a>
            </li>
          )}
        </ul>
      )}
    </Panel>
  );
}
