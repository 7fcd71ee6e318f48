import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { bytes, full, protocol, span } from '../../format.js';
import { session } from '../../node.js';
import { addressOf } from '../../router.js';
import { Empty, Failure, type Verdict, VerdictMark } from '../../ui/parts.js';
import { useStill } from '../../ui/still.js';
import { TableHead } from '../../ui/table-head.js';
import { Lasting } from '../../ui/time.js';
import { CutDialog, type CutQuestion } from './cut.js';
import { type Filter, FLOW_PARAMETERS, LIVE_PARAMETERS, passes, readFilter } from './filter.js';
import { deciderOf, ownerName } from './message.js';
import type { View } from './view.js';

type Flow = Schemas['Flow'];
const PAGE = 200;
const POLL_MS = 3_000;

/**
 * Converts the parameters of a filter to the form that `openapi-fetch` needs: a list of values for each name.
 */
export function listsOf(parameters: Filter['parameters']): Record<string, string[]> {
  const lists: Record<string, string[]> = {};
  for (const [name, value] of parameters) lists[name] = [...(lists[name] ?? []), value];
  return lists;
}

/** A table of the open flows, read page by page. */
export function Flows({ view }: { readonly view: View }) {
  const filter = useMemo(() => readFilter(view.filter, FLOW_PARAMETERS), [view.filter]);
  const cursors = useSignal<readonly string[]>([]);
  const question = useSignal<CutQuestion | null>(null);
  const key = `${view.filter} ${view.scope}`;
  const cursor = cursors.value.at(-1);
  const lists = listsOf(filter.parameters);
  const flows = usePolled(
    (signal) => {
      const scope = view.scope === 'cluster' ? { scope: 'cluster' as const } : {};
      const query = { ...lists, ...scope, limit: PAGE, ...(cursor === undefined ? {} : { cursor }) };
      return bodyOf(api.GET('/api/v1/flows', { params: { query: query }, signal }));
    },
    POLL_MS,
    `${key} ${cursor}`,
  );
  const { shown: page, handlers, release } = useStill(flows.data.value, `${key} ${cursor}`);
  const items = page?.items.filter((flow) => passes(textOf(flow), filter)) ?? [];
  const ignored = readFilter(view.filter, LIVE_PARAMETERS).parameters.filter(([name]) => !isOfFlows(name));
  const hasWords = filter.words.length + filter.without.length > 0;
  const whyNot = !session.mayWrite.value
    ? 'This session may only read.'
    : view.scope === 'cluster'
      ? 'A node cuts its own flows only: choose "this node".'
      : filter.parameters.length === 0
        ? 'Filter by src:, dst:, port: or another parameter first.'
        : hasWords
          ? 'The node cuts by parameters such as src: and port:, not by words.'
          : null;
  return (
    <>
      <Failure failure={flows.failure.value} />
      {ignored.length > 0 && (
        <p class="muted">
          {ignored.map(([name]) => `${name}:`).join(' ')} is a filter of the live messages. Open flows do not have it.
        </p>
      )}
      <div class="stream-state">
        <span>
          <strong>{page === null ? '…' : full(page.matched)}</strong> open {page?.matched === 1 ? 'flow' : 'flows'}
          {filter.parameters.length > 0 && ' with this filter'}
        </span>
        {hasWords && page !== null && <span class="muted">{full(items.length)} on this page match the words</span>}
        {page?.node_errors.map(({ node_id, error }) => (
          <span key={node_id} class="is-audit">
            {node_id} did not respond: {error}
          </span>
        ))}
        <a
          class={filter.parameters.some(([name]) => name === 'suspended') ? 'is-chosen' : ''}
          href={suspendedAddress(view)}
        >
          Only suspended flows
        </a>
        <button
          type="button"
          class="hold"
          disabled={whyNot !== null}
          title={whyNot ?? undefined}
          onClick={() => {
            question.value = { query: lists, words: filter.parameters.map((each) => each.join(':')).join(' ') };
          }}
        >
          Cut these flows…
        </button>
        {whyNot !== null && <span class="muted">{whyNot}</span>}
      </div>
      {page !== null && items.length === 0 && (
        <Empty>
          {page.matched === 0
            ? 'No open flow matches. A denied connection has no flow: see the view Live.'
            : 'No flow of this page matches the words of the filter.'}
        </Empty>
      )}
      {items.length > 0 && (
        <section class="scroll" aria-label="Open flows" {...handlers}>
          <FlowTable
            items={items}
            hasNodes={view.scope === 'cluster'}
            cut={(flow) => {
              question.value = questionOf(flow);
            }}
          />
        </section>
      )}
      <p class="actions pages">
        <button
          type="button"
          disabled={cursors.value.length === 0}
          onClick={() => {
            cursors.value = cursors.value.slice(0, -1);
          }}
        >
          Previous {PAGE}
        </button>
        <button
          type="button"
          disabled={page?.next_cursor == null}
          onClick={() => {
            if (page?.next_cursor != null) cursors.value = [...cursors.value, page.next_cursor];
          }}
        >
          Next {PAGE}
        </button>
      </p>
      {question.value !== null && (
        <CutDialog
          question={question.value}
          onEnd={() => {
            question.value = null;
            release();
            flows.again();
          }}
        />
      )}
    </>
  );
}

const isOfFlows = (name: string) => (FLOW_PARAMETERS as readonly string[]).includes(name);

function suspendedAddress(view: View): string {
  const others = view.filter.split(/\s+/).filter((token) => token !== '' && !token.startsWith('suspended:'));
  const isOnly = view.filter.includes('suspended:');
  return addressOf('traffic', { ...view, filter: [...others, ...(isOnly ? [] : ['suspended:true'])].join(' ') });
}

const verdictOfFlow = ({ verdict }: Pick<Flow, 'verdict'>): Verdict =>
  verdict === 'deny' ? 'deny' : verdict === 'audit' ? 'would_deny' : 'allow';

const endText = (address: string, port: number | null, owner: Flow['src_owner']) => {
  const end = port === null ? address : `${address}:${port}`;
  const name = ownerName(owner);
  return name === null ? end : `${name} (${end})`;
};

const textOf = (flow: Flow): string =>
  [
    endText(flow.src, flow.src_port ?? flow.icmp_id, flow.src_owner),
    endText(flow.dst, flow.dst_port, flow.dst_owner),
    ...[protocol(flow.proto), flow.state, deciderOf(flow), flow.suspended ? 'suspended' : '', flow.verdict ?? ''],
    ...[flow.interfaces.in ?? '', flow.interfaces.out ?? ''],
  ]
    .join(' ')
    .toLowerCase();

/** Returns the filter that matches only this flow, to end it. */
function questionOf(flow: Flow): CutQuestion {
  const ports =
    flow.src_port === null || flow.dst_port === null
      ? {}
      : { src_port: [String(flow.src_port)], dst_port: [String(flow.dst_port)] };
  return {
    query: { src: [flow.src], dst: [flow.dst], proto: [String(flow.proto)], ...ports },
    words: `${endText(flow.src, flow.src_port, null)} → ${endText(flow.dst, flow.dst_port, null)} ${protocol(flow.proto)}`,
  };
}

type TableProps = {
  readonly items: readonly Flow[];
  readonly hasNodes: boolean;
  readonly cut: (flow: Flow) => void;
};

function FlowTable({ items, hasNodes, cut }: TableProps) {
  return (
    <table class="flows">
      <TableHead
        columns={[
          ...(hasNodes ? ['Node'] : []),
          ...['Verdict', 'From', 'To', 'State', 'Decided by'],
          ...[{ number: 'There' }, { number: 'Back' }, { number: 'Open for' }, { number: 'Ends in' }],
          { hidden: 'Actions' },
        ]}
      />
      <tbody>
        {items.map((flow) => (
          <tr key={`${flow.node_id} ${flow.id}`} class={flow.suspended ? 'suspended' : ''}>
            {hasNodes && <td>{flow.node_id}</td>}
            <td>
              <VerdictMark
                verdict={verdictOfFlow(flow)}
                {...(flow.suspended ? { word: 'suspended' } : flow.verdict === 'redirect' ? { word: 'inspected' } : {})}
              />
            </td>
            <td class="mono">{endText(flow.src, flow.src_port ?? flow.icmp_id, flow.src_owner)}</td>
            <td class="mono">
              {endText(flow.dst, flow.dst_port, flow.dst_owner)} <span class="muted">{protocol(flow.proto)}</span>
            </td>
            <td>{flow.state.replace(/^\w+?_/, '').replaceAll('_', ' ')}</td>
            <td>
              {flow.foreign ? (
                <span title="The first packet came in on an interface that is not policed.">not policed</span>
              ) : (
                deciderOf(flow)
              )}
              {!flow.current && !flow.foreign && (
                <span class="muted" title="The next packet is judged by the policy in force.">
                  , judged again
                </span>
              )}
            </td>
            <td class="number" title={`${full(flow.packets.forward)} packets`}>
              {bytes(flow.bytes.forward)}
            </td>
            <td class="number" title={`${full(flow.packets.reply)} packets`}>
              {bytes(flow.bytes.reply)}
            </td>
            <td class="number">
              <Lasting at={flow.opened} />
            </td>
            <td class="number">{span(flow.expires_in)}</td>
            <td class="number">
              <a href={whyFlow(flow)}>Why?</a>{' '}
              <button
                type="button"
                class="link"
                disabled={!session.mayWrite.value || hasNodes}
                title={
                  !session.mayWrite.value
                    ? 'This session may only read.'
                    : hasNodes
                      ? 'A node cuts its own flows only: choose "this node".'
                      : undefined
                }
                onClick={() => cut(flow)}
              >
                Cut
              </button>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const whyFlow = ({ src, dst, proto, src_port, dst_port }: Flow) =>
  addressOf('why', {
    ...{ src, dst, proto: protocol(proto).replace('protocol ', '') },
    src_port: src_port === null ? undefined : String(src_port),
    dst_port: dst_port === null ? undefined : String(dst_port),
  });
