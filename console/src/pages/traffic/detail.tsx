import { bytes, clockTime, full, protocol } from '../../format.js';
import { addressOf } from '../../router.js';
import { Drawer } from '../../ui/drawer.js';
import { VerdictMark } from '../../ui/parts.js';
import { Ago } from '../../ui/time.js';
import { toggled } from './filter.js';
import type { Message } from './message.js';
import { countOf, type Row } from './row.js';

/** Returns the link to the explanation of a wiretap message; null if the node cannot explain it. */
export function whyAddress({ type, src, dst, proto, dst_port: port, hostname, sni, http }: Message): string | null {
  if (src == null) return null;
  if (type === 'dns') return hostname == null ? null : addressOf('names', { src, query: hostname });
  if (dst == null || proto == null) return null;
  const name = http?.host ?? sni ?? undefined;
  return addressOf('why', {
    ...{ src, dst, proto: protocol(proto).replace('protocol ', '') },
    dst_port: port == null ? undefined : String(port),
    hostname: name,
  });
}

type Props = { readonly row: Row; readonly filter: string; readonly onClose: () => void };

/** A panel with all fields of one row, and links to related pages. */
export function RowDetail({ row, filter, onClose }: Props) {
  const { outcome, message, from, to, subject, decider } = row;
  const why = whyAddress(message);
  const only = (name: string, value: string) => addressOf('traffic', { filter: toggled(filter, `${name}:${value}`) });
  const { source_group: group, rule, interface: on, drop_reason: drop } = message;
  return (
    <Drawer
      title={
        <>
          <VerdictMark verdict={outcome} /> {subject}
        </>
      }
      onClose={onClose}
    >
      <dl class="facts">
        <Fact name="From">{from}</Fact>
        <Fact name="To">{to}</Fact>
        <Fact name="Decided by">
          {group != null && rule != null ? <a href={addressOf('policy', { group, rule })}>{decider}</a> : decider}
        </Fact>
        {drop != null && drop !== 'policy_deny' && <Fact name="Dropped for">{drop.replaceAll('_', ' ')}</Fact>}
        {on != null && <Fact name="Came in on">{on}</Fact>}
        <Fact name="Seen">
          {countOf(row) === 1 ? 'once' : `${full(countOf(row))} times`}, first <Ago at={row.first} />
        </Fact>
        {row.packets > 0 && (
          <Fact name="Carried">
            {full(row.packets)} packets{row.bytes > 0 && `, ${bytes(row.bytes)}`}
          </Fact>
        )}
        {row.nodes.length > 0 && <Fact name="At">{row.nodes.join(', ')}</Fact>}
      </dl>
      <p class="actions">
        {why !== null && (
          <a class="button primary" href={why}>
            Why?
          </a>
        )}
        {why !== null && outcome !== 'allow' && (
          <a class="button" href={why}>
            Allow this…
          </a>
        )}
        {message.src != null && (
          <a class="button" href={only('src', message.src)}>
            Only this source
          </a>
        )}
        {message.dst != null && (
          <a class="button" href={only('dst', message.dst)}>
            Only this destination
          </a>
        )}
      </p>
      <h3>Latest messages</h3>
      <ul class="plain-list latest">
        {row.latest.toReversed().map(({ at, type, port, reason }) => (
          <li key={`${at} ${type} ${port}`}>
            <span class="mono">{clockTime(at)}</span> {TYPES[type] ?? type}
            {port !== null && <span class="muted"> from port {port}</span>}
            {reason !== null && <span class="muted">, {reason.replaceAll('_', ' ')}</span>}
          </li>
        ))}
      </ul>
    </Drawer>
  );
}

const TYPES: Readonly<Record<string, string>> = {
  flow: 'a flow opened',
  flow_end: 'a flow ended',
  flow_suspend: 'a flow was suspended',
  flow_resume: 'a flow goes on',
  verdict: 'a packet',
  dns: 'a lookup',
  tls: 'a connection',
  http: 'a request',
};

export function Fact({ name, children }: { readonly name: string; readonly children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
