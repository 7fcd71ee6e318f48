import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import '../../style/traffic.css';
import '../../style/findings.css';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { full } from '../../format.js';
import { node } from '../../node.js';
import { addressOf, go, query } from '../../router.js';
import { Empty, Failure, Panel } from '../../ui/parts.js';
import { ShowMore } from '../../ui/show-more.js';
import { useStill } from '../../ui/still.js';
import { TableHead } from '../../ui/table-head.js';
import { Ago } from '../../ui/time.js';
import { passes, readFilter } from '../traffic/filter.js';
import { SearchField } from '../traffic/search-field.js';
import { Granting } from './granting.js';
import { LookupQuestion } from './lookup.js';

type Entry = Schemas['DnsCache']['items'][number];
const ROWS = 200;
const ADDRESSES = 6;
const POLL_MS = 5_000;

/**
 * The page Names: shows the addresses that the node allows because DNS resolved an allowed name to them, and
 * explains whether a client may look up a name.
 */
export function Names() {
  // Do not request the cache of a node without a DNS proxy. Its readiness report shows that it has none.
  const state = node.report.value?.readiness.checks.find(({ name }) => name === 'dns_allowlist')?.state;
  const isAbsent = state === 'disabled';
  const isKnown = state !== undefined;
  const text = query.value.get('filter') ?? '';
  const pattern = useSignal<string | null>(null);
  const change = (filter: string) =>
    go(addressOf('names', { ...Object.fromEntries(query.peek()), filter }), { replace: true });
  return (
    <>
      <h1>Who may look up what?</h1>
      <p class="muted">
        A rule with a name allows the addresses that a client has looked up through this node, until they expire.
      </p>
      <LookupQuestion />
      <div class="cache-grid">
        <Panel title="Names that clients have looked up">
          {isAbsent ? (
            <Empty>
              This node has no DNS proxy, so that rules with names match nothing. Add a section <code>dns</code> to its
              configuration, and let the clients ask this node for names.
            </Empty>
          ) : (
            <>
              <search class="form-row traffic-filter">
                <SearchField
                  text={text}
                  label="Search"
                  placeholder="shop.example.com, 10.2.0.2, or *.example.com"
                  change={change}
                />
              </search>
              {isKnown ? <Cache text={text} pattern={pattern} /> : <p aria-busy="true">…</p>}
            </>
          )}
        </Panel>
      </div>
      {pattern.value !== null && (
        <Granting
          pattern={pattern.value}
          onClose={() => {
            pattern.value = null;
          }}
        />
      )}
    </>
  );
}

type CacheProps = { readonly text: string; readonly pattern: { value: string | null } };

function Cache(props: CacheProps) {
  const cache = usePolled((signal) => bodyOf(api.GET('/api/v1/dns-cache', { signal })), POLL_MS);
  return (
    <>
      <Failure failure={cache.failure.value} />
      {cache.data.value !== null && <Entries items={cache.data.value.items} {...props} />}
    </>
  );
}

function Entries({ items, text, pattern }: CacheProps & { readonly items: readonly Entry[] }) {
  const shown = useSignal(ROWS);
  const { shown: still, handlers } = useStill(items, '');
  const filter = useMemo(() => readFilter(text, []), [text]);
  const matching = useMemo(
    () =>
      (still ?? items)
        .filter((each) => passes([each.hostname, ...each.ips, ...each.patterns].join(' ').toLowerCase(), filter))
        .toSorted((one, other) => (one.last_seen < other.last_seen ? 1 : -1)),
    [still, filter],
  );
  if (matching.length === 0)
    return (
      <Empty>
        {items.length === 0
          ? 'No client has looked up a name yet. Clients must use this node as their DNS server.'
          : `None of ${full(items.length)} names matches.`}
      </Empty>
    );
  return (
    <section class="scroll" aria-label="Names" {...handlers}>
      <p class="muted list-size">
        {full(matching.length)} {matching.length === 1 ? 'name' : 'names'}
        {matching.length < items.length && ` of ${full(items.length)}`}
      </p>
      <table class="findings">
        <TableHead
          columns={['Name', 'Addresses', 'Granted by the patterns', { number: 'Looked up' }, { number: 'Expires' }]}
        />
        <tbody>
          {matching.slice(0, shown.value).map((each) => (
            <Row key={each.hostname} entry={each} pattern={pattern} />
          ))}
        </tbody>
      </table>
      <ShowMore all={matching.length} shown={shown} step={ROWS} />
    </section>
  );
}

function Row({ entry, pattern }: { readonly entry: Entry; readonly pattern: { value: string | null } }) {
  const { hostname, ips, patterns, expires_at: expires, last_seen: last } = entry;
  return (
    <tr>
      <th scope="row">
        <a href={addressOf('traffic', { filter: `hostname:${hostname}` })} title="Watch the traffic to this name">
          {hostname}
        </a>
      </th>
      <td class="mono" title={ips.join(', ')}>
        {ips.slice(0, ADDRESSES).join(', ')}
        {ips.length > ADDRESSES && ` and ${full(ips.length - ADDRESSES)} more`}
      </td>
      <td>
        {patterns.length === 0 ? (
          <span class="muted">no rule names it</span>
        ) : (
          <span class="chips">
            {patterns.map((each) => (
              <button
                key={each}
                type="button"
                class="link mono"
                aria-label={`Rules with the pattern ${each}`}
                onClick={() => {
                  pattern.value = each;
                }}
              >
                {each}
              </button>
            ))}
          </span>
        )}
      </td>
      <td class="number">
        <Ago at={last} />
      </td>
      <td class="number">
        <Ago at={expires} />
      </td>
    </tr>
  );
}
