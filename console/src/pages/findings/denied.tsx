import { useSignal } from '@preact/signals';
import { full, protocol, short } from '../../format.js';
import { addressOf } from '../../router.js';
import { Drawer } from '../../ui/drawer.js';
import { Empty, VerdictMark } from '../../ui/parts.js';
import { ShowMore } from '../../ui/show-more.js';
import { TableHead } from '../../ui/table-head.js';
import { Ago } from '../../ui/time.js';
import { Fact } from '../traffic/detail.js';
import { type Denied, type Finding, sourceOf } from './folded.js';

const ROWS = 200;
const SOURCES = 3;
const DETAILS = 100;

/** Returns the link to the explanation of a finding; null if the node cannot explain it. */
function whyFinding(finding: Finding): string | null {
  const { finding_type: type, src_ip: src, dst_ip: dst, proto, dst_port: port, hostname, sni, http } = finding;
  if (src === null) return null;
  if (type === 'dns_deny') return hostname === null ? null : addressOf('names', { src, query: hostname });
  if (dst === null || proto === null) return null;
  return addressOf('why', {
    ...{ src, dst, proto: protocol(proto).replace('protocol ', '') },
    dst_port: port === null ? undefined : String(port),
    hostname: http?.host ?? sni ?? undefined,
  });
}

type Props = { readonly denied: readonly Denied[]; readonly isFiltered: boolean };

/** A table of denied traffic with one row for each destination. */
export function DeniedTable({ denied, isFiltered }: Props) {
  const shown = useSignal(ROWS);
  const chosen = useSignal<string | null>(null);
  const detail = denied.find(({ key }) => key === chosen.value);
  if (denied.length === 0)
    return (
      <Empty>
        {isFiltered
          ? 'Nothing matches. Take something out of the filter, or choose a longer period.'
          : 'Nothing was denied in this period, and nothing would have been.'}
      </Empty>
    );
  return (
    <>
      <table class="findings">
        <TableHead
          columns={[
            'Verdict',
            'Destination',
            'What',
            'Sources',
            'Decided by',
            { number: 'Count' },
            { number: 'First' },
            { number: 'Last' },
            { hidden: 'Reason' },
          ]}
        />
        <tbody>
          {denied.slice(0, shown.value).map((each) => (
            <DeniedRow
              key={each.key}
              denied={each}
              isChosen={each.key === chosen.value}
              choose={() => {
                chosen.value = each.key;
              }}
            />
          ))}
        </tbody>
      </table>
      <ShowMore all={denied.length} shown={shown} step={ROWS} />
      {detail !== undefined && (
        <Detail
          denied={detail}
          onClose={() => {
            chosen.value = null;
          }}
        />
      )}
    </>
  );
}

type RowProps = { readonly denied: Denied; readonly isChosen: boolean; readonly choose: () => void };

function DeniedRow({ denied, isChosen, choose }: RowProps) {
  const { outcome, destination, what, sources, count, first, last, findings } = denied;
  const finding = findings[0];
  const why = finding === undefined ? null : whyFinding(finding);
  return (
    <tr class={`${outcome} ${isChosen ? 'is-chosen' : ''}`}>
      <td>
        <VerdictMark verdict={outcome} />
      </td>
      <td>
        <button type="button" class="link mono" onClick={choose} aria-label={`Details: ${destination}, ${what}`}>
          {destination}
        </button>
      </td>
      <td>{what}</td>
      <td>
        {sources.length > SOURCES ? (
          <span title={sources.slice(0, 50).join(', ')}>{full(sources.length)} sources</span>
        ) : (
          <span class="mono">{sources.join(', ')}</span>
        )}
      </td>
      <td>
        <Decider denied={denied} />
      </td>
      <td class="number" title={full(count)}>
        {short(count)}
      </td>
      <td class="number">
        <Ago at={first} />
      </td>
      <td class="number">
        <Ago at={last} />
      </td>
      <td class="number">{why !== null && <a href={why}>Why?</a>}</td>
    </tr>
  );
}

function Decider({ denied: { decider, findings } }: { readonly denied: Denied }) {
  const { source_group: group, rule } = findings[0] ?? { source_group: null, rule: null };
  if (group === null || rule === null) return <>{decider}</>;
  return <a href={addressOf('policy', { group, rule })}>{decider}</a>;
}

/** A panel with the sources of one denied destination, each with a link to its explanation. */
function Detail({ denied, onClose }: { readonly denied: Denied; readonly onClose: () => void }) {
  const { outcome, destination, what, count, first, last, findings } = denied;
  const nodes = [...new Set(findings.flatMap(({ node_ids }) => node_ids))];
  const address = findings[0]?.dst_ip;
  return (
    <Drawer
      title={
        <>
          <VerdictMark verdict={outcome} /> {destination}
        </>
      }
      onClose={onClose}
    >
      <dl class="facts">
        <Fact name="What">{what}</Fact>
        <Fact name="Decided by">
          <Decider denied={denied} />
        </Fact>
        <Fact name="Seen">
          {count === 1 ? 'once' : `${full(count)} times`}, first <Ago at={first} />, last <Ago at={last} />
        </Fact>
        <Fact name={nodes.length === 1 ? 'At' : 'At nodes'}>{nodes.join(', ')}</Fact>
      </dl>
      {address != null && (
        <p>
          <a class="button" href={addressOf('traffic', { filter: `dst:${address}` })}>
            Watch it live
          </a>
        </p>
      )}
      <h3>From where</h3>
      <table class="sources">
        <TableHead isHidden columns={['Source', 'Count', 'Last', 'Reason']} />
        <tbody>
          {findings.slice(0, DETAILS).map((finding) => {
            const why = whyFinding(finding);
            return (
              <tr key={finding.id}>
                <td class="mono">{sourceOf(finding)}</td>
                <td class="number">{full(finding.count)}</td>
                <td class="number">
                  <Ago at={finding.last_seen} />
                </td>
                <td class="number">
                  {why !== null && (
                    <>
                      <a href={why}>Why?</a> <a href={why}>Allow…</a>
                    </>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {findings.length > DETAILS && <p class="muted">and {full(findings.length - DETAILS)} more</p>}
    </Drawer>
  );
}
