import { useMemo } from 'preact/hooks';
import '../../style/traffic.css';
import '../../style/findings.css';
import { full } from '../../format.js';
import { addressOf, go, query } from '../../router.js';
import { Failure } from '../../ui/parts.js';
import { EnablePerformanceMode } from '../../ui/performance-mode.js';
import { SelectField } from '../../ui/select-field.js';
import { useStill } from '../../ui/still.js';
import { Tabs, tabOf } from '../../ui/tabs.js';
import { type Filter, passes, readFilter } from '../traffic/filter.js';
import { listsOf } from '../traffic/flows.js';
import { SearchField } from '../traffic/search-field.js';
import { DeniedTable } from './denied.js';
import { folded, textOf } from './folded.js';
import { Changes, Gaps, Refusals } from './lists.js';
import { DENIED_TYPES, isSwitchedOff, useFindings } from './read.js';

const TABS = [
  ['denied', 'Denied traffic'],
  ['changes', 'Changes'],
  ['refused', 'Sign-ins refused'],
  ['gaps', 'Gaps and conflicts'],
] as const;
const PARAMETERS = ['src', 'dst', 'source_group', 'rule', 'policy_id', 'finding_type'];
const HOUR = 3_600_000;
const PERIODS = [
  ['hour', 'the last hour', HOUR],
  ['day', 'the last 24 hours', 24 * HOUR],
  ['week', 'the last 7 days', 168 * HOUR],
  ['all', 'all that are kept', null],
] as const;
const TYPES: Readonly<Record<string, readonly string[]>> = {
  denied: DENIED_TYPES,
  changes: ['config_change'],
  refused: ['auth_denied'],
  gaps: ['gap', 'cluster_contradiction', 'address_shared', 'value_unreadable'],
};

/** The page Findings: lists denied traffic with its count, its sources and its first time. */
export function Findings() {
  const tab = tabOf(TABS);
  const text = query.value.get('filter') ?? '';
  const period = PERIODS.find(([id]) => id === query.value.get('period')) ?? PERIODS[1];
  const address = (change: Readonly<Record<string, string>>) =>
    addressOf('findings', {
      ...{ tab: tab === 'denied' ? '' : tab, filter: text, period: period[0] === 'day' ? '' : period[0] },
      ...change,
    });
  const filter = useMemo(() => readFilter(text.replace(/(^|\s)group:/g, '$1source_group:'), PARAMETERS), [text]);
  return (
    <>
      <h1>What was denied?</h1>
      <Tabs label="Kinds of findings" tabs={TABS} addressOf={(id) => address({ tab: id === 'denied' ? '' : id })} />
      <search class="form-row traffic-filter">
        <SearchField
          text={text}
          placeholder="telnet src:10.1.0.0/16 group:office rule:no-telnet -lookup"
          change={(filter) => go(address({ filter }), { replace: true })}
        />
        <SelectField
          label="Seen in"
          kind="verdicts"
          value={period[0]}
          options={PERIODS.map(([id, words]) => [id, words] as const)}
          onChoose={(id) => go(address({ period: id }), { replace: true })}
        />
      </search>
      <List key={tab} tab={tab} filter={filter} lastMs={period[2]} />
    </>
  );
}

type ListProps = { readonly tab: string; readonly filter: Filter; readonly lastMs: number | null };

function List({ tab, filter, lastMs }: ListProps) {
  const types = filter.parameters.some(([name]) => name === 'finding_type') ? {} : { finding_type: TYPES[tab] ?? [] };
  const found = useFindings({ ...types, ...listsOf(filter.parameters) }, lastMs);
  const { shown: page, handlers } = useStill(found.data.value, JSON.stringify([filter.parameters, lastMs]));
  const denied = useMemo(
    () =>
      tab === 'denied' && page !== null ? folded(page.findings).filter((each) => passes(textOf(each), filter)) : [],
    [page, filter, tab],
  );
  const others = useMemo(
    () => page?.findings.filter((finding) => passes(JSON.stringify(finding).toLowerCase(), filter)) ?? [],
    [page, filter],
  );
  const failure = found.failure.value;
  if (isSwitchedOff(failure)) return <SwitchedOff onEnabled={found.again} />;
  if (page === null) return failure === null ? <p aria-busy="true">…</p> : <Failure failure={failure} />;
  return (
    <>
      <Failure failure={failure} />
      {page.silentNodes.length > 0 && (
        <p class="is-audit">
          Incomplete: {page.silentNodes.map(({ node_id, error }) => `${node_id} (${error})`).join(', ')} did not
          respond.
        </p>
      )}
      <p class="muted list-size">
        {tab === 'denied'
          ? `${full(denied.length)} different, from ${full(page.findings.length)} findings`
          : `${full(others.length)} shown`}
        {page.hasMore && '. Only the latest 5,000 findings are read: filter, or choose a shorter period.'}
      </p>
      <section class="panel scroll" aria-label="Findings" {...handlers}>
        {tab === 'denied' && (
          <DeniedTable denied={denied} isFiltered={filter.words.length + filter.parameters.length > 0} />
        )}
        {tab === 'changes' && <Changes findings={others} />}
        {tab === 'refused' && <Refusals findings={others} />}
        {tab === 'gaps' && <Gaps findings={others} />}
      </section>
    </>
  );
}

function SwitchedOff({ onEnabled }: { readonly onEnabled: () => void }) {
  return (
    <div class="switched-off" role="status">
      <p>
        <strong>The findings cannot be read, because performance mode is off.</strong> The node enforces its policy as
        before. Packets that it denies in this time are counted in the statistics, and not listed here, also not later.
      </p>
      <span class="actions">
        <EnablePerformanceMode onEnabled={onEnabled} />
      </span>
    </div>
  );
}
