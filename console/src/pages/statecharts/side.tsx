import type { Signal } from '@preact/signals';
import { clockTime, exact } from '../../format.js';
import { Empty } from '../../ui/parts.js';
import { Lasting } from '../../ui/time.js';
import {
  type Arrow,
  arrowsFrom,
  arrowsInto,
  type Chart,
  duration,
  eventWords,
  innermost,
  nameOf,
  outward,
  type State,
} from './model.js';
import type { Part, Transition } from './parts.js';

type Props = {
  readonly chart: Chart;
  readonly part: Part;
  readonly active: readonly State[];
  readonly transitions: readonly Transition[];
  /** The state to describe: under the pointer or selected. Null: describe the active states. */
  readonly focused: State | null;
  readonly arrow: Signal<Arrow | null>;
};

/**
 * Describes an actor in words: its active states, the transitions that can follow, and its latest
 * transitions.
 */
export function Side({ chart, part, active, transitions, focused, arrow }: Props) {
  const leaves = innermost(active);
  return (
    <div class="panel chart-side">
      {focused === null ? (
        <>
          <h2>Now</h2>
          <Now leaves={leaves} {...{ part, transitions }} />
          <h2>From here</h2>
          <Arrows arrows={unique(leaves.flatMap((leaf) => arrowsFrom(chart, leaf)))} {...{ chart, arrow }} />
        </>
      ) : (
        <>
          <h2>{pathOf(focused)}</h2>
          <p class="muted">
            {descriptionOf(focused) ?? (active.includes(focused) ? 'Active now.' : 'Not active now.')}
            {focused.invokes.length > 0 && <> Runs {focused.invokes.join(', ')}.</>}
          </p>
          <h2>From this state</h2>
          <Arrows arrows={arrowsFrom(chart, focused)} {...{ chart, arrow }} />
          <h2>Into this state</h2>
          <Arrows arrows={arrowsInto(chart, focused)} into {...{ chart, arrow }} />
        </>
      )}
      <h2>Before</h2>
      <Before chart={chart} transitions={transitions} />
    </div>
  );
}

const unique = (arrows: readonly Arrow[]): readonly Arrow[] => [...new Set(arrows)];
/** Returns the names of a state and of its outer states, without the root state. */
const pathOf = (state: State): string =>
  [...outward(state)]
    .filter(({ parent }) => parent !== null)
    .reverse()
    .map(nameOf)
    .join(' › ') || nameOf(state);
const descriptionOf = (state: State): string | null =>
  [...outward(state)].find(({ description }) => description !== null)?.description ?? null;

/** More regions than this with the same state name are shown as one entry. */
const FEW = 3;

function Now({
  leaves,
  part,
  transitions,
}: {
  readonly leaves: readonly State[];
  readonly part: Part;
  readonly transitions: readonly Transition[];
}) {
  const byName = new Map<string, State[]>();
  for (const leaf of leaves) byName.set(nameOf(leaf), [...(byName.get(nameOf(leaf)) ?? []), leaf]);
  return (
    <ul class="plain-list now">
      {[...byName].flatMap(([name, states]) =>
        states.length > FEW
          ? [
              <li key={name}>
                <strong>{name}</strong> in {states.length} regions{' '}
                <span class="muted">
                  {states.map(({ parent }) => (parent === null ? '' : nameOf(parent))).join(', ')}
                </span>
              </li>,
            ]
          : states.map((state) => {
              const since = enteredAt(state, part, transitions);
              return (
                <li key={state.id}>
                  <strong>{pathOf(state)}</strong>
                  {since !== null && (
                    <span class="muted">
                      {' '}
                      for <Lasting at={since} />
                    </span>
                  )}
                  {descriptionOf(state) !== null && <p>{descriptionOf(state)}</p>}
                </li>
              );
            }),
      )}
    </ul>
  );
}

/** Returns the time when a state was entered; null if the page has no transitions from that time. */
function enteredAt(state: State, { startedAt, sessionId }: Part, transitions: readonly Transition[]): number | null {
  const last = transitions.findLast(({ entered }) => entered.includes(state.id));
  if (last !== undefined) return Date.parse(last.time);
  return transitions.filter(({ session_id }) => session_id === sessionId).length < 40 ? startedAt : null;
}

type ArrowsProps = {
  readonly chart: Chart;
  readonly arrows: readonly Arrow[];
  readonly into?: boolean;
  readonly arrow: Signal<Arrow | null>;
};

function Arrows({ chart, arrows, into = false, arrow }: ArrowsProps) {
  const moves = arrows.filter(({ targets }) => targets.length > 0);
  const stays = arrows.filter(({ targets }) => targets.length === 0);
  const label = (id: string) => {
    const state = chart.states.get(id);
    return state === undefined ? id : pathOf(state);
  };
  if (moves.length === 0 && stays.length === 0)
    return <Empty>{into ? 'No transition: it is where the chart begins.' : 'No transition: this is an end.'}</Empty>;
  const point = (next: Arrow | null) => () => {
    arrow.value = next;
  };
  return (
    <>
      <ul class="plain-list moves">
        {moves.map((move) => (
          <li key={move.index} onPointerEnter={point(move)} onPointerLeave={point(null)}>
            {into && <b>{label(move.source)} </b>}
            <span class="muted">
              {eventWords(move.event)}
              {move.guard !== null && ` [${move.guard}]`}
            </span>{' '}
            {!into && (
              <>
                <span aria-hidden="true">→</span>
                <span class="visually-hidden">to</span> <b>{move.targets.map(label).join(', ')}</b>
              </>
            )}
          </li>
        ))}
      </ul>
      {stays.length > 0 && (
        <details>
          <summary class="muted">{stays.length} handled without a change of state</summary>
          <p class="muted">{[...new Set(stays.map(({ event }) => eventWords(event)))].join(', ')}</p>
        </details>
      )}
    </>
  );
}

function Before({ chart, transitions }: { readonly chart: Chart; readonly transitions: readonly Transition[] }) {
  const moved = transitions.filter(({ entered, exited }) => entered.length + exited.length > 0);
  if (moved.length === 0) return <Empty>No transition since the part started.</Empty>;
  const name = (id: string) => {
    const state = chart.states.get(id);
    return state === undefined ? id : nameOf(state);
  };
  return (
    <ol class="plain-list before">
      {moved.toReversed().map(({ time, event, taken, entered, exited }, at) => {
        const from = exited.at(-1);
        return (
          <li key={moved.length - at}>
            <time dateTime={time} title={exact(time)}>
              {clockTime(time)}.{time.slice(20, 23)}
            </time>{' '}
            <span class="muted">
              {eventWords(taken[0]?.event ?? event)}
              {taken[0]?.guard != null && ` [${taken[0].guard}]`}
            </span>{' '}
            <b>{name(entered.at(-1) ?? '')}</b>
            {from !== undefined && (
              <span class="muted">
                {' '}
                after {duration(from.after_ms)} in {name(from.state)}
              </span>
            )}
          </li>
        );
      })}
    </ol>
  );
}
