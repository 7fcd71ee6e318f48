import { useMemo } from 'preact/hooks';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { full, protocol } from '../../format.js';
import { addressOf, go, query } from '../../router.js';
import { Empty, Failure, type Verdict, VerdictMark } from '../../ui/parts.js';
import { Coverage, SeenEnds, WhyCell } from '../../ui/seen-flows.js';
import { SelectField } from '../../ui/select-field.js';
import { useStill } from '../../ui/still.js';
import { TableHead } from '../../ui/table-head.js';
import { Ago } from '../../ui/time.js';
import { type Filter, FLOW_PARAMETERS, LIVE_PARAMETERS, passes, readFilter, SEEN_PARAMETERS } from './filter.js';
import { listsOf } from './flows.js';
import type { View } from './view.js';

type SeenFlow = Schemas['SeenFlow'];
const MOST = 500;
const NAMES: readonly string[] = [...LIVE_PARAMETERS, ...FLOW_PARAMETERS];
const isOfSeen = (name: string) => (SEEN_PARAMETERS as readonly string[]).includes(name);
const POLL_MS = 10_000;
const ORDERS = [
  ['last_seen', 'the latest first'],
  ['count', 'the most frequent first'],
] as const;

/** Parses the filter, and removes the parameters that this list does not support. */
function seenFilter(text: string): Filter {
  const { parameters, ...words } = readFilter(text, [...NAMES, ...SEEN_PARAMETERS]);
  return { ...words, parameters: parameters.filter(([name]) => isOfSeen(name)) };
}

/** The flows that this node has seen in the last days. */
export function Seen({ view }: { readonly view: View }) {
  const filter = useMemo(() => seenFilter(view.filter), [view.filter]);
  const order = query.value.get('order') === 'count' ? ('count' as const) : ('last_seen' as const);
  const key = `${view.filter} ${order}`;
  const seen = usePolled(
    (signal) => {
      const { port = [], dst_port = [], ...others } = listsOf(filter.parameters);
      const ports = [...port, ...dst_port];
      const asked = { ...others, ...(ports.length === 0 ? {} : { dst_port: ports }) };
      return bodyOf(api.GET('/api/v1/flows/seen', { params: { query: { ...asked, order, limit: MOST } }, signal }));
    },
    POLL_MS,
    key,
  );
  const { shown: page, handlers } = useStill(seen.data.value, key);
  const items = page?.items.filter((flow) => passes(textOf(flow), filter)) ?? [];
  const ignored = readFilter(view.filter, NAMES).parameters.filter(([name]) => !isOfSeen(name));
  return (
    <>
      <Failure failure={seen.failure.value} />
      {ignored.length > 0 && (
        <p class="muted">
          {ignored.map(([name]) => `${name}:`).join(' ')} is no filter of this list, and was left out.
        </p>
      )}
      <div class="stream-state">
        <span>
          <strong>{page === null ? '…' : full(page.matched)}</strong> seen {page?.matched === 1 ? 'flow' : 'flows'}
        </span>
        {page !== null && page.matched > page.items.length && (
          <span class="muted">the first {full(page.items.length)} are listed: filter to see others</span>
        )}
        <SelectField
          label={<span class="visually-hidden">Order</span>}
          kind="choice"
          value={order}
          options={ORDERS}
          onChoose={(chosen) => go(addressOf('traffic', { ...view, tab: 'seen', order: chosen }), { replace: true })}
        />
      </div>
      {page !== null && items.length === 0 && (
        <Empty>
          {page.items.length === 0
            ? 'No flow that this node has seen matches the filter.'
            : `None of the ${full(page.items.length)} listed flows has the words of the filter.`}
        </Empty>
      )}
      {items.length > 0 && (
        <section class="scroll" aria-label="Seen flows" {...handlers}>
          <table class="flows">
            <TableHead
              columns={[
                ...['Last verdict', 'From', 'To', 'Service'],
                ...[{ number: 'Passed' }, { number: 'Denied' }, { number: 'First' }, { number: 'Last' }],
                { hidden: 'Explanation' },
              ]}
            />
            <tbody>
              {items.map((flow) => (
                <tr
                  key={`${flow.src_ip} ${flow.dst_ip} ${flow.proto} ${flow.dst_port} ${flow.icmp_type} ${flow.icmp_code}`}
                >
                  <td>
                    <VerdictMark
                      verdict={verdictOf(flow)}
                      {...(flow.last_verdict === 'redirect' ? { word: 'inspected' } : {})}
                    />
                  </td>
                  <SeenEnds flow={flow} />
                  <td class="number">{full(flow.connections)}</td>
                  <td class="number">{full(flow.denied)}</td>
                  <td class="number">
                    <Ago at={flow.first_seen} />
                  </td>
                  <td class="number">
                    <Ago at={flow.last_seen} />
                  </td>
                  <WhyCell flow={flow} />
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {page !== null && <Coverage node={page.node_id} coverage={page.coverage} />}
    </>
  );
}

const verdictOf = ({ last_verdict: verdict }: SeenFlow): Verdict =>
  verdict === 'deny' ? 'deny' : verdict === 'audit' ? 'would_deny' : 'allow';

const textOf = ({ src_ip, dst_ip, hostname, proto, dst_port, last_verdict }: SeenFlow): string =>
  [src_ip, dst_ip, hostname, protocol(proto), dst_port, `${protocol(proto)}/${dst_port}`, VERDICT_WORDS[last_verdict]]
    .join(' ')
    .toLowerCase();

const VERDICT_WORDS = { allow: 'allowed', deny: 'denied', audit: 'would be denied', redirect: 'inspected' } as const;
