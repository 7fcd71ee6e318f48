import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import '../../style/traffic.css';
import { node } from '../../node.js';
import { addressOf, go, query } from '../../router.js';
import { SelectField } from '../../ui/select-field.js';
import { Tabs, tabOf } from '../../ui/tabs.js';
import { FLOW_PARAMETERS, LIVE_PARAMETERS, queryOf, readFilter, SEEN_PARAMETERS, withParameter } from './filter.js';
import { Flows } from './flows.js';
import { Live } from './live.js';
import { TrafficMap } from './map.js';
import { SearchField } from './search-field.js';
import { Seen } from './seen.js';
import { useTraffic } from './stream.js';
import { StreamState } from './stream-state.js';
import { type View, viewOf } from './view.js';

const TABS = [
  ['live', 'Live'],
  ['flows', 'Open flows'],
  ['map', 'Map'],
  ['seen', 'Last days'],
] as const;
const NAMES = [...new Set<string>([...LIVE_PARAMETERS, ...FLOW_PARAMETERS, ...SEEN_PARAMETERS])];

/** The page Traffic: shows which hosts send traffic to which destinations. */
export function Traffic() {
  const view = viewOf(query.value);
  const tab = tabOf(TABS);
  const show = (change: Partial<View>, { replace = true } = {}) =>
    go(addressOf('traffic', { ...viewOf(query.peek()), ...change }), { replace });
  return (
    <>
      <h1>Who talks to what?</h1>
      <Tabs label="Views of the traffic" tabs={TABS} addressOf={(id) => addressOf('traffic', { ...view, tab: id })} />
      <FilterFields view={view} show={show} />
      {tab === 'flows' ? (
        <Flows view={view} />
      ) : tab === 'seen' ? (
        <Seen view={view} />
      ) : (
        <Streamed tab={tab} view={view} show={show} />
      )}
    </>
  );
}

type ShowProps = { readonly view: View; readonly show: (change: Partial<View>) => void };

/** The two views of the live stream. The stream stays open when the user switches between them. */
function Streamed({ tab, view, show }: ShowProps & { readonly tab: string }) {
  const filter = useMemo(() => readFilter(view.filter, LIVE_PARAMETERS), [view.filter]);
  const isHeld = useSignal(false);
  const traffic = useTraffic(
    queryOf([...filter.parameters, ...(view.scope === 'cluster' ? [['scope', 'cluster'] as const] : [])]),
  );
  return (
    <>
      <StreamState traffic={traffic} isHeld={isHeld} />
      {tab === 'map' ? (
        <TrafficMap traffic={traffic} filter={filter} view={view} isHeld={isHeld} />
      ) : (
        <Live traffic={traffic} filter={filter} view={view} show={show} isHeld={isHeld} />
      )}
    </>
  );
}

const VERDICTS = [
  ['', 'every verdict'],
  ['deny', 'denied'],
  ['audit', 'would be denied'],
  ['allow', 'allowed'],
  ['redirect', 'inspected'],
] as const;

function FilterFields({ view, show }: ShowProps) {
  const { parameters } = readFilter(view.filter, NAMES);
  const verdicts = parameters.filter(([name]) => name === 'verdict').map(([, value]) => value);
  const isCluster =
    node.report.value?.readiness.checks.some(({ name, state }) => name === 'cluster' && state !== 'alone') ?? false;
  return (
    <search class="form-row traffic-filter">
      <SearchField
        text={view.filter}
        placeholder="office port:443 -dns src:10.0.0.0/8"
        describedBy="filter-help"
        change={(filter) => show({ filter })}
      />
      <SelectField
        label="Verdict"
        kind="verdicts"
        value={(verdicts.length === 1 ? verdicts[0] : undefined) ?? ''}
        options={VERDICTS}
        onChoose={(verdict) => show({ filter: withParameter(view.filter, 'verdict', verdict) })}
      />
      {isCluster && (
        <label class="field verdicts">
          Nodes
          <select
            value={view.scope === 'cluster' ? 'cluster' : ''}
            onChange={(event) => show({ scope: event.currentTarget.value })}
          >
            <option value="">this node</option>
            <option value="cluster">all nodes</option>
          </select>
        </label>
      )}
      <details class="filter-help">
        <summary>How to filter</summary>
        <p id="filter-help">
          Words must be in a row, <code>-word</code> must not. The node itself filters by <code>src:</code>{' '}
          <code>dst:</code> <code>port:</code> <code>proto:</code> <code>hostname:</code> <code>group:</code>{' '}
          <code>rule:</code> <code>verdict:</code> <code>type:</code>, as <code>weir wiretap</code> and{' '}
          <code>weir flows</code> do: <code>src:10.0.0.0/8 port:80,443 hostname:*.example.com</code>.
        </p>
      </details>
    </search>
  );
}
