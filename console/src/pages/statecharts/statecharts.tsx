import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { api, bodyOf } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { useStream } from '../../api/stream.js';
import { node } from '../../node.js';
import { addressOf, query } from '../../router.js';
import { Empty, Failure, StateMark } from '../../ui/parts.js';
import { StreamMark } from '../../ui/stream-mark.js';
import { Ago, Lasting } from '../../ui/time.js';
import { Drawing, type Taken } from './drawing.js';
import { type Arrow, activeIn, type Chart, chartOf, type State, summaryOf } from './model.js';
import { type Part, Parts } from './parts.js';
import { Side } from './side.js';
import '../../style/statecharts.css';

/**
 * The page Statecharts: shows for each part of the node its active states, its latest transitions and the
 * possible next ones.
 */
export function Statecharts() {
  const definitions = usePolled((signal) => bodyOf(api.GET('/api/v1/debug/statecharts/definitions', { signal })), null);
  const parts = useMemo(() => new Parts(), []);
  const stream = useStream({
    path: '/api/v1/debug/statecharts/stream',
    protocol: 'weir.statecharts.v1',
    receive: parts.receive,
  });
  // Read the definitions again after a reconnection: the node may have been restarted with another build.
  const isLive = stream.state.value === 'live';
  useEffect(() => {
    if (isLive && definitions.data.peek() !== null) definitions.again();
  }, [isLive]);
  const charts = useMemo(
    () => new Map(definitions.data.value?.definitions.map((each) => [each.id, chartOf(each)]) ?? []),
    [definitions.data.value],
  );
  void parts.changes.value;
  const known = parts.all.filter(({ chart }) => charts.has(chart));
  const wanted = query.value.get('part');
  const part =
    known.findLast(({ name }) => name === wanted) ?? known.find(({ name }) => name === 'dataplane') ?? known[0];
  const chart = part === undefined ? undefined : charts.get(part.chart);
  return (
    <div class="statecharts">
      <header class="statecharts-head">
        <h1>Statecharts</h1>
        <p class="muted">Each part of the node is a statechart. What is filled is where it is now.</p>
        <StreamMark stream={stream} />
      </header>
      <Failure failure={definitions.failure.value} />
      {part === undefined || chart === undefined ? (
        <Empty>
          {isLive && definitions.data.value !== null ? 'The node reports no parts.' : 'Waiting for the node…'}
        </Empty>
      ) : (
        <div class="statecharts-body">
          <PartList parts={known} charts={charts} shown={part} />
          <OneChart key={part.sessionId} part={part} chart={chart} parts={parts} />
        </div>
      )}
    </div>
  );
}

type ListProps = {
  readonly parts: readonly Part[];
  readonly charts: ReadonlyMap<string, Chart>;
  readonly shown: Part;
};

/** A list of all actors with their active states. An actor is below the actor that started it. */
function PartList({ parts, charts, shown }: ListProps) {
  const failing = new Set(node.report.value?.readiness.checks.filter(({ ok }) => !ok).map(({ name }) => name));
  const isRoot = ({ parentId }: Part) => parentId === null || !parts.some(({ sessionId }) => sessionId === parentId);
  const list = (some: readonly Part[]) => (
    <ul>
      {some.map((part) => {
        const chart = charts.get(part.chart);
        const inner = parts.filter(({ parentId }) => parentId === part.sessionId);
        const isFailing = part.tags.some((tag) => failing.has(tag.split(':')[0] ?? ''));
        return (
          <li key={part.sessionId}>
            <a
              href={addressOf('statecharts', { part: part.name })}
              aria-current={part === shown ? 'true' : undefined}
              class={part.endedAt === null ? '' : 'ended'}
            >
              <span class="part-name">
                {isFailing && <StateMark ok={false} word="its readiness check fails" />} {part.name}
              </span>
              <span class="part-states">
                {chart !== undefined &&
                  summaryOf(activeIn(chart, part.value)).map(({ name, count }) => (
                    <span key={name} class="part-state">
                      {name}
                      {count > 1 && ` ×${count}`}
                    </span>
                  ))}
              </span>
            </a>
            {inner.length > 0 && list(inner)}
          </li>
        );
      })}
    </ul>
  );
  return (
    <nav class="part-list" aria-label="Parts of the node">
      {list(parts.filter(isRoot))}
    </nav>
  );
}

function OneChart({ part, chart, parts }: { readonly part: Part; readonly chart: Chart; readonly parts: Parts }) {
  const pointed = useSignal<State | null>(null);
  const picked = useSignal<State | null>(null);
  const arrow = useSignal<Arrow | null>(null);
  const fold = useSignal<boolean | null>(null);
  const valueKey = JSON.stringify(part.value);
  const active = useMemo(() => activeIn(chart, part.value), [chart, valueKey]);
  const transitions = parts.transitionsOf(part);
  const taken = useTaken(parts, part);
  const last = transitions.findLast(({ entered }) => entered.length > 0);
  const hasNested = chart.root.children.some(({ children }) => children.length > 0);
  return (
    <>
      <section class="chart-main" aria-labelledby="chart-title">
        <header class="chart-head">
          <h2 id="chart-title">{part.name}</h2>
          <span class="muted">
            {part.endedAt !== null ? (
              <>
                ended <Ago at={part.endedAt} />
              </>
            ) : (
              <>
                in this state for <Lasting at={last?.time ?? part.startedAt} />
              </>
            )}
          </span>
          {picked.value !== null && (
            <button
              type="button"
              class="plain"
              onClick={() => {
                picked.value = null;
              }}
            >
              Show the active states again
            </button>
          )}
          {hasNested && (
            <label class="check">
              <input
                type="checkbox"
                checked={fold.value === true}
                onChange={(event) => {
                  fold.value = event.currentTarget.checked ? true : null;
                }}
              />{' '}
              Fold what is not active
            </label>
          )}
        </header>
        <Drawing
          {...{ chart, active, taken, pointed, arrow, fold }}
          picked={picked.value}
          onPick={(state) => {
            picked.value = picked.value === state ? null : state;
          }}
        />
      </section>
      <Side {...{ chart, part, active, transitions, arrow }} focused={pointed.value ?? picked.value} />
    </>
  );
}

/** Returns the transitions of an actor since the page shows it. The drawing highlights them for a moment. */
function useTaken(parts: Parts, part: Part): readonly Taken[] {
  const seen = useRef<{ last: unknown; taken: readonly Taken[] } | null>(null);
  const transitions = parts.transitionsOf(part);
  const last = transitions.at(-1);
  seen.current ??= { last, taken: [] };
  if (seen.current.last !== last) {
    const from = transitions.indexOf(seen.current.last as (typeof transitions)[number]);
    const at = performance.now();
    const fresh = transitions.slice(from + 1).filter(({ entered }) => entered.length > 0);
    const taken = fresh.map(({ taken: some, entered }, index) => ({
      pairs: some.flatMap(({ source, targets }) => targets.map((to) => ({ from: source, to }))),
      entered,
      at: at + index / 1_000,
    }));
    // After a reconnection, the node sends earlier transitions again: they are not highlighted.
    seen.current = { last, taken: from < 0 ? [] : [...seen.current.taken, ...taken].slice(-12) };
  }
  return seen.current.taken;
}
