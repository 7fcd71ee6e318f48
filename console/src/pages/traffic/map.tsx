import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { full } from '../../format.js';
import { addressOf } from '../../router.js';
import { Empty, type Verdict, VerdictMark } from '../../ui/parts.js';
import { TableHead } from '../../ui/table-head.js';
import { type Filter, passes, toggled } from './filter.js';
import { type MapData, type MapLine, type MapNode, mapOf } from './map-data.js';
import type { Traffic } from './stream.js';
import type { View } from './view.js';

const MOST = 30;
/** The table of the map is expanded at first if it has at most this number of lines. */
const SHORT = 15;
/** The maximum number of port classes in the label of a destination. */
const PORTS_SHOWN = 3;
/** The height of a map node with the space below it, and then without it, in pixels, as in traffic.css. */
const STEP = 44;
const HEIGHT = 34;
const OUTCOMES: readonly Verdict[] = ['allow', 'would_deny', 'deny'];

type Props = {
  readonly traffic: Traffic;
  readonly filter: Filter;
  readonly view: View;
  readonly isHeld: Signal<boolean>;
};

/**
 * A map of the traffic: source groups on the left, destinations on the right, and a line for each class of
 * ports.
 */
export function TrafficMap({ traffic, filter, view, isHeld }: Props) {
  const pointed = useSignal<string | null>(null);
  const isTouched = useSignal(false);
  const still = useRef<MapData | null>(null);
  const key = `${view.filter} ${view.scope}`;
  // After a change of the filter, lines may move again until the pointer moves.
  useEffect(() => {
    isTouched.value = false;
    pointed.value = null;
  }, [key]);
  void traffic.painted.value;
  const isStill = isHeld.value || isTouched.value;
  const stillKey = useRef(key);
  if (!isStill || still.current === null || stillKey.current !== key)
    still.current = mapOf(
      traffic.rows.ordered('count', Date.now()).filter(({ text }) => passes(text, filter)),
      MOST,
    );
  stillKey.current = key;
  const data = still.current;
  if (data.lines.length === 0) return <Empty>No traffic yet that matches the filter.</Empty>;
  const height = Math.max(data.groups.length, data.destinations.length) * STEP;
  const tops = topsOf(data, height);
  return (
    <section class="panel map-panel">
      <Legend isStill={isStill} />
      <div
        class="map"
        style={{ height: `${height}px` }}
        onPointerMove={() => {
          isTouched.value = true;
        }}
        onPointerLeave={() => {
          isTouched.value = false;
        }}
      >
        <Nodes title="Source groups" data={data} tops={tops} view={view} pointed={pointed} />
        <Lines data={data} tops={tops} height={height} pointed={pointed.value} />
        <Nodes title="Destinations" data={data} tops={tops} view={view} pointed={pointed} />
      </div>
      <MapTable data={data} />
    </section>
  );
}

/** Returns the vertical positions of the map nodes. The shorter column is centred. */
function topsOf({ groups, destinations }: MapData, height: number): ReadonlyMap<string, number> {
  const spread = (nodes: readonly MapNode[], side: string) =>
    nodes.map(({ key }, at): [string, number] => [`${side}${key}`, ((at + 0.5) * height) / nodes.length - HEIGHT / 2]);
  return new Map([...spread(groups, 'from '), ...spread(destinations, 'to ')]);
}

type NodesProps = {
  readonly title: 'Source groups' | 'Destinations';
  readonly data: MapData;
  readonly tops: ReadonlyMap<string, number>;
  readonly view: View;
  readonly pointed: Signal<string | null>;
};

function Nodes({ title, data, tops, view, pointed }: NodesProps) {
  const [nodes, side] = title === 'Destinations' ? [data.destinations, 'to '] : [data.groups, 'from '];
  const point = (key: string | null) => () => {
    pointed.value = key;
  };
  return (
    <ul class={`map-nodes ${side.trim()}`} aria-label={title}>
      {nodes.map(({ key, label, filter, count }) => {
        const isChosen = filter !== null && view.filter.split(/\s+/).includes(filter);
        return (
          <li
            key={key}
            style={{ top: `${tops.get(side + key) ?? 0}px` }}
            onPointerEnter={point(side + key)}
            onPointerLeave={point(null)}
            onFocusIn={point(side + key)}
            onFocusOut={point(null)}
          >
            {filter === null ? (
              <span title={`${full(count)} times`}>
                {label}
                {side === 'to ' && <Ports lines={data.lines} to={key} />}
              </span>
            ) : (
              <a
                href={addressOf('traffic', { ...view, filter: toggled(view.filter, filter) })}
                title={`${label}, ${full(count)} times`}
                class={isChosen ? 'is-chosen' : ''}
              >
                {label}
                {side === 'to ' && <Ports lines={data.lines} to={key} />}
                <span class="visually-hidden">{isChosen ? '(show the others again)' : '(show only this)'}</span>
              </a>
            )}
          </li>
        );
      })}
    </ul>
  );
}

/** Shows the most frequent port classes of a destination. */
function Ports({ lines, to }: { readonly lines: readonly MapLine[]; readonly to: string }) {
  const counts = new Map<string, number>();
  for (const { ports, count, to: other } of lines)
    if (other === to) counts.set(ports, count + (counts.get(ports) ?? 0));
  const sorted = [...counts].sort(([, one], [, other]) => other - one).map(([ports]) => ports);
  const rest = sorted.length - PORTS_SHOWN;
  return (
    <span class="map-ports">
      {sorted.slice(0, PORTS_SHOWN).join(', ')}
      {rest > 0 && ` +${rest}`}
    </span>
  );
}

/**
 * The line styles: dashes for denied traffic, dots for traffic that audit mode reports as denied. So the
 * color is not the only difference.
 */
const DASHES: Readonly<Record<Verdict, (width: number) => string | undefined>> = {
  allow: () => undefined,
  deny: (width) => `${6 + width} ${4 + width}`,
  would_deny: (width) => `0.1 ${3 + 1.5 * width}`,
};
const widthOf = (rate: number) => Math.min(8, 1.5 + Math.log2(1 + rate));

type LinesProps = {
  readonly data: MapData;
  readonly tops: ReadonlyMap<string, number>;
  readonly height: number;
  readonly pointed: string | null;
};

function Lines({ data, tops, height, pointed }: LinesProps) {
  const top = (side: string, key: string) => tops.get(`${side}${key}`) ?? 0;
  /**
   * Returns the vertical position where a line ends at a map node. The ends are sorted by the nodes at the
   * other ends.
   */
  const endOf = (side: 'from ' | 'to ', line: MapLine) => {
    const isFrom = side === 'from ';
    const beside = data.lines
      .filter((each) => (isFrom ? each.from === line.from : each.to === line.to))
      .toSorted((one, other) =>
        isFrom ? top('to ', one.to) - top('to ', other.to) : top('from ', one.from) - top('from ', other.from),
      );
    const inset = 5;
    const part = (HEIGHT - 2 * inset) / beside.length;
    return top(side, isFrom ? line.from : line.to) + inset + part * (beside.indexOf(line) + 0.5);
  };
  return (
    <svg class="map-lines" viewBox={`0 0 100 ${height}`} preserveAspectRatio="none" aria-hidden="true">
      {data.lines
        .toSorted((one, other) => OUTCOMES.indexOf(one.outcome) - OUTCOMES.indexOf(other.outcome))
        .map((line) => {
          const { from, to, ports, outcome, rate } = line;
          const [begin, end] = [endOf('from ', line), endOf('to ', line)];
          const isAside = pointed !== null && pointed !== `from ${from}` && pointed !== `to ${to}`;
          return (
            <path
              key={`${from} ${to} ${ports} ${outcome}`}
              class={`${outcome} ${isAside ? 'aside' : rate === 0 ? 'idle' : ''}`}
              d={`M0 ${begin}C45 ${begin} 55 ${end} 100 ${end}`}
              vector-effect="non-scaling-stroke"
              stroke-width={widthOf(rate)}
              stroke-dasharray={DASHES[outcome](widthOf(rate))}
            >
              <title>{`${ports}, ${WORDS[outcome]}: ${full(line.count)} times, ${rate.toFixed(1)} a second`}</title>
            </path>
          );
        })}
    </svg>
  );
}

const WORDS: Readonly<Record<Verdict, string>> = { allow: 'allowed', deny: 'denied', would_deny: 'would be denied' };

function Legend({ isStill }: { readonly isStill: boolean }) {
  return (
    <p class="map-legend">
      {OUTCOMES.map((outcome) => (
        <span key={outcome}>
          <svg class="map-lines" viewBox="0 0 40 8" width="40" height="8" aria-hidden="true">
            <path class={outcome} d="M0 4H40" stroke-width="3" stroke-dasharray={DASHES[outcome](3)} />
          </svg>
          {WORDS[outcome]}
        </span>
      ))}
      <span class="muted">
        Thicker means more a second, pale means none now. {isStill && 'The map stands still while you are in it.'}
      </span>
    </p>
  );
}

/** The traffic map as a table, expanded at first if it is short. */
function MapTable({ data: { groups, destinations, lines, others } }: { readonly data: MapData }) {
  const isOpen = useMemo(() => lines.length <= SHORT, []);
  const label = (nodes: readonly MapNode[], key: string) => nodes.find((node) => node.key === key)?.label ?? key;
  return (
    <details class="map-table" open={isOpen}>
      <summary>
        The same as a table: {full(lines.length)} lines{others > 0 && `, ${full(others)} destinations drawn as one`}
      </summary>
      <table>
        <TableHead columns={['From', 'To', 'What', 'Verdict', { number: 'Count' }, { number: 'A second' }]} />
        <tbody>
          {lines
            .toSorted((one, other) => other.count - one.count)
            .map(({ from, to, ports, outcome, count, rate }) => (
              <tr key={`${from} ${to} ${ports} ${outcome}`}>
                <td>{label(groups, from)}</td>
                <td>{label(destinations, to)}</td>
                <td>{ports}</td>
                <td>
                  <VerdictMark verdict={outcome} />
                </td>
                <td class="number">{full(count)}</td>
                <td class="number">{rate.toFixed(1)}</td>
              </tr>
            ))}
        </tbody>
      </table>
    </details>
  );
}
