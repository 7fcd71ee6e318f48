import type { ComponentChildren } from 'preact';
import { full } from '../../format.js';
import { addressOf } from '../../router.js';
import { Empty } from '../../ui/parts.js';
import { TableHead } from '../../ui/table-head.js';
import { Ago } from '../../ui/time.js';
import type { Finding } from './folded.js';

type Column = readonly [title: string, cell: (finding: Finding) => ComponentChildren, isNumber?: boolean];
type ListProps = { readonly findings: readonly Finding[] };
const MOST = 500;

function ListTable({
  findings,
  columns,
  empty,
}: ListProps & { readonly columns: readonly Column[]; readonly empty: string }) {
  if (findings.length === 0) return <Empty>{empty}</Empty>;
  return (
    <>
      <table class="findings">
        <TableHead columns={columns.map(([title, , isNumber]) => (isNumber === true ? { number: title } : title))} />
        <tbody>
          {findings.slice(0, MOST).map((finding) => (
            <tr key={finding.id}>
              {columns.map(([title, cell, isNumber]) => (
                <td key={title} class={isNumber === true ? 'number' : ''}>
                  {cell(finding)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {findings.length > MOST && (
        <p class="muted">and {full(findings.length - MOST)} older ones: filter to see them.</p>
      )}
    </>
  );
}

const last: Column = ['When', ({ last_seen }) => <Ago at={last_seen} />];
const count: Column = ['Count', (finding) => full(finding.count), true];
const nodes: Column = ['Node', ({ node_ids }) => node_ids.join(', ')];
/** Returns the words of an operation name: "activatePolicy" → "activate policy". */
const words = (name: string | null) => (name ?? '').replaceAll(/([A-Z])/g, ' $1').toLowerCase();

/** A list of the successful writes through the API. */
export const Changes = ({ findings }: ListProps) => (
  <ListTable
    findings={findings}
    empty="Nobody changed the configuration in this period."
    columns={[
      last,
      ['Who', ({ actor }) => <strong>{actor ?? 'unknown'}</strong>],
      ['Did', ({ operation }) => words(operation)],
      ['To', ({ target }) => <code>{target}</code>],
      ['From', ({ remote }) => <span class="mono">{remote}</span>],
      ['Status', ({ status }) => status, true],
      nodes,
      [
        '',
        ({ target }) =>
          target?.includes('/polic') === true ? (
            <a href={addressOf('policy', { id: /\/policies\/([\da-f-]{36})/.exec(target)?.[1], view: 'history' })}>
              History
            </a>
          ) : null,
      ],
    ]}
  />
);

/** Texts for the error codes of refused requests (findings of the type `auth_denied`). */
const REFUSALS: Readonly<Record<string, string>> = {
  invalid_token: 'no valid token or session',
  invalid_sign_in_code: 'no valid sign-in link',
  too_many_failed_logins: 'too many attempts',
  forbidden: 'the right is missing',
  host_refused: 'a foreign Host',
  origin_refused: 'a foreign Origin',
};

/** A list of the API requests that the node refused because of a missing permission or an invalid token. */
export const Refusals = ({ findings }: ListProps) => (
  <ListTable
    findings={findings}
    empty="No sign-in and no request was refused in this period."
    columns={[
      last,
      [
        'Why',
        ({ drop_reason }) => <strong>{REFUSALS[drop_reason ?? ''] ?? words(drop_reason).replaceAll('_', ' ')}</strong>,
      ],
      ['Who', ({ actor }) => actor ?? 'unknown'],
      ['Wanted', ({ operation, target }) => (target === null ? words(operation) : <code>{target}</code>)],
      ['From', ({ remote }) => <span class="mono">{remote}</span>],
      ['First', ({ first_seen }) => <Ago at={first_seen} />, true],
      count,
      nodes,
    ]}
  />
);

const GAPS: Readonly<Record<string, string>> = {
  gap: 'Events were lost',
  cluster_contradiction: 'etcd contradicts what this node applied',
  address_shared: 'Two objects own one address',
  value_unreadable: 'A value in etcd cannot be read',
};
const PLACES: Readonly<Record<string, string>> = {
  dataplane: 'between the kernel and the node',
  source_share: 'beyond the share of a source',
  dns: 'in the DNS proxy',
  service_plane: 'in the TLS inspection',
  observer: 'in the observer',
};

/** A list of findings that were lost, and of contradictions in the data of the node. */
export const Gaps = ({ findings }: ListProps) => (
  <ListTable
    findings={findings}
    empty="No event was lost in this period, and nothing contradicts itself."
    columns={[
      last,
      ['What', ({ finding_type: type }) => <strong>{GAPS[type] ?? type}</strong>],
      [
        'Where',
        ({ finding_type: type, target, src_ip: address }) =>
          type === 'gap' ? (
            (PLACES[target ?? ''] ?? target)
          ) : (
            <code>{[address, target].filter((part) => part !== null).join(', ')}</code>
          ),
      ],
      ['Reason', ({ reason }) => reason],
      ['First', ({ first_seen }) => <Ago at={first_seen} />, true],
      count,
      nodes,
    ]}
  />
);
