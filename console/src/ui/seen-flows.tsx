import { useSignal } from '@preact/signals';
import type { Schemas } from '../api/client.js';
import { full, protocol, span } from '../format.js';
import { addressOf } from '../router.js';
import { Empty, VerdictMark } from './parts.js';
import { sentence } from './regions.js';
import { ShowMore } from './show-more.js';
import { TableHead } from './table-head.js';
import { Ago } from './time.js';

type Impact = Schemas['PolicyImpact'];
type ImpactFlow = Schemas['ImpactFlow'];
type SeenFlow = Schemas['SeenFlow'];

const ROWS = 8;
/** The types of echo requests of ICMP and ICMPv6. */
const ECHO_REQUESTS: readonly (number | null)[] = [8, 128];

type Props = { readonly impact: Impact | null; readonly unavailable: string | null };

/**
 * Lists the flows of the last days that a change affects, and the period from which the node has recorded
 * flows.
 */
export function SeenFlows({ impact, unavailable }: Props) {
  const shown = useSignal(ROWS);
  return (
    <section class="diff-part seen-flows">
      <h3>Seen flows</h3>
      {impact === null ? (
        <Empty>Whether the change affects flows that were seen is not known: {unavailable}.</Empty>
      ) : (
        <>
          <p class={impact.flows.length === 0 ? 'muted' : 'sentence'}>{sentence(impact.summary)}</p>
          {impact.flows.length > 0 && <FlowTable flows={impact.flows.slice(0, shown.value)} />}
          <ShowMore all={impact.flows.length} shown={shown} step={ROWS * 4} />
          {impact.flows_omitted > 0 && (
            <p class="muted">
              {full(impact.flows_omitted)} further flows are not listed. The command <code>weir policy diff --all</code>{' '}
              lists more.
            </p>
          )}
          {impact.flows.some(({ depends }) => depends) && (
            <p class="muted">
              “May”: TLS, a selector or the source port decides, or the row stands for several flows. The node does not
              record these facts.
            </p>
          )}
          <Coverage node={impact.node} coverage={impact.coverage} />
        </>
      )}
    </section>
  );
}

function FlowTable({ flows }: { readonly flows: readonly ImpactFlow[] }) {
  return (
    <section class="scroll" aria-label="Seen flows that the change affects">
      <table>
        <TableHead
          columns={['Effect', 'From', 'To', 'Service', { number: 'Seen' }, 'Last', { hidden: 'Explanation' }]}
        />
        <tbody>
          {flows.map((flow) => (
            <tr key={`${flow.src_ip} ${flow.dst_ip} ${serviceText(flow)} ${flow.icmp_code}`}>
              <td>
                <EffectMark flow={flow} />
              </td>
              <SeenEnds flow={flow} />
              <td class="number">{flow.effect === 'opens' ? `${full(flow.denied)} denied` : full(flow.connections)}</td>
              <td>
                <Ago at={flow.last_seen} />
              </td>
              <WhyCell flow={flow} />
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** The cells with the source, the destination and the service of a flow. */
export function SeenEnds({ flow }: { readonly flow: SeenFlow }) {
  return (
    <>
      <td>
        <code>{flow.src_ip}</code>
      </td>
      <td>
        {flow.hostname !== null && <>{flow.hostname} </>}
        <code class={flow.hostname === null ? '' : 'muted'}>{flow.dst_ip}</code>
      </td>
      <td>
        <code>{serviceText(flow)}</code>
      </td>
    </>
  );
}

/** The table cell with a link to the explanation of a flow. */
export function WhyCell({ flow }: { readonly flow: SeenFlow }) {
  return <td>{canExplain(flow) && <a href={whyAddress(flow)}>Why?</a>}</td>;
}

const WORDS = {
  closes: ['closes', 'may close'],
  opens: ['opens', 'may open'],
  inspection: ['is inspected otherwise', 'may be inspected otherwise'],
  audit: ['is reported otherwise', 'may be reported otherwise'],
} as const;

function EffectMark({ flow: { effect, depends } }: { readonly flow: ImpactFlow }) {
  const word = WORDS[effect][depends ? 1 : 0];
  if (effect === 'inspection' || effect === 'audit') return <>{word}</>;
  return <VerdictMark verdict={effect === 'opens' ? 'allow' : 'deny'} word={word} />;
}

type CoverageProps = { readonly node: string; readonly coverage: Impact['coverage'] };

/** Shows which flows the node has recorded, and which can be missing. */
export function Coverage({ node, coverage }: CoverageProps) {
  const { since, until, recorded_minutes: minutes, flows, folded, events_lost: lost, recording } = coverage;
  const seconds = (Date.parse(until) - Date.parse(since)) / 1_000;
  const missing = [
    ...(lost > 0 ? [`${full(lost)} events were lost`] : []),
    ...(coverage.events_not_recorded > 0 ? [`${full(coverage.events_not_recorded)} events were not recorded`] : []),
    ...(folded > 0 ? [`${full(folded)} rows stand for several flows each`] : []),
  ];
  return (
    <p class="muted">
      <strong>{node}</strong> recorded {span(Math.min(seconds, minutes * 60 + 59))} of the last {span(seconds)}, and{' '}
      {full(flows)} {flows === 1 ? 'flow' : 'flows'}.{missing.length > 0 && <> {sentence(missing.join(', '))}</>}
      {!recording && (
        <>
          {' '}
          <a href={addressOf('settings')}>Switch performance mode on</a>
        </>
      )}
    </p>
  );
}

function serviceText({ proto, dst_port: port, icmp_type: type }: SeenFlow): string {
  const name = protocol(proto);
  if (port !== null) return `${name}/${port}`;
  return type === null ? name : `${name}/${type}`;
}

/**
 * Whether the page Why can explain a flow. It can explain only single flows, and of ICMP only echo requests.
 */
const canExplain = ({ folded, icmp_type: type }: SeenFlow): boolean =>
  !folded && (type === null || ECHO_REQUESTS.includes(type));

function whyAddress({ src_ip: src, dst_ip: dst, proto, dst_port: port, hostname }: SeenFlow): string {
  return addressOf('why', {
    ...{ src, dst, proto: protocol(proto) },
    ...(port === null ? {} : { dst_port: String(port) }),
    ...(hostname === null ? {} : { hostname }),
  });
}
