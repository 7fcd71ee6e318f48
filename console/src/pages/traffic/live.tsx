import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { clockTime, full, short } from '../../format.js';
import { Empty, VerdictMark } from '../../ui/parts.js';
import { RowDetail, whyAddress } from './detail.js';
import { type Filter, passes } from './filter.js';
import { countOf, type Row } from './row.js';
import type { Order } from './rows.js';
import type { Traffic } from './stream.js';
import type { View } from './view.js';

/**
 * The height of a row in pixels, as in traffic.css. All rows are equally high, so that the page can render
 * only the visible ones.
 */
const ROW = 34;
const AROUND = 8;

type Props = {
  readonly traffic: Traffic;
  readonly filter: Filter;
  readonly view: View;
  readonly show: (change: Partial<View>) => void;
  readonly isHeld: Signal<boolean>;
};

const orderOf = ({ order }: View): Order => (order === 'count' || order === 'rate' ? order : 'recent');

/** A table of the live wiretap messages. Rows do not move while the pointer or the focus is in the table. */
export function Live({ traffic, filter, view, show, isHeld }: Props) {
  const chosen = useSignal<Row | null>(null);
  const isPointed = useSignal(false);
  const isFocused = useSignal(false);
  const place = useSignal({ top: 0, height: 600 });
  const still = useRef<readonly Row[] | null>(null);
  const scroller = useRef<HTMLElement>(null);
  useHoldKey(isHeld);
  useEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const note = () => {
      place.value = { top: element.scrollTop, height: element.clientHeight };
    };
    const observer = new ResizeObserver(note);
    observer.observe(element);
    element.addEventListener('scroll', note, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', note);
    };
  }, []);

  const key = `${view.filter} ${view.order} ${view.scope}`;
  // After a change of the filter, rows may move again until the pointer moves.
  useEffect(() => {
    isPointed.value = false;
    isFocused.value = false;
  }, [key]);

  void traffic.painted.value;
  const order = orderOf(view);
  const matching = traffic.rows.ordered(order, Date.now()).filter(({ text }) => passes(text, filter));
  const isStill = isHeld.value || isPointed.value || isFocused.value;
  const stillKey = useRef(key);
  if (!isStill || stillKey.current !== key) still.current = null;
  stillKey.current = key;
  // Show copies of the rows while the user has stopped the table, so that their counts do not change either.
  if (isStill) still.current ??= isHeld.value ? matching.map((row) => ({ ...row })) : matching;
  const rows = still.current ?? matching;
  const kept = new Set(isStill ? rows.map(({ id }) => id) : []);
  const waiting = isStill ? matching.filter(({ id }) => !kept.has(id)).length : 0;

  const from = Math.max(0, Math.floor(place.value.top / ROW) - AROUND);
  const to = Math.min(rows.length, Math.ceil((place.value.top + place.value.height) / ROW) + AROUND);
  const sorting = (name: Order, title: string, more = '') => (
    <th scope="col" class={`number ${more}`} aria-sort={order === name ? 'descending' : undefined}>
      <button type="button" class="sort" onClick={() => show({ order: name === 'recent' ? '' : name })}>
        {title}
      </button>
    </th>
  );
  return (
    <>
      <p class="waiting-rows" aria-live="polite">
        {isStill && (
          <>
            {isHeld.value ? 'Held.' : 'Rows keep their places while you are here.'}
            {waiting > 0 && ` ${full(waiting)} new ${waiting === 1 ? 'row waits' : 'rows wait'}.`}
          </>
        )}
      </p>
      <section
        class="rows-scroll"
        ref={scroller}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls this region.
        tabIndex={0}
        aria-label="Live traffic"
        onPointerMove={() => {
          isPointed.value = true;
        }}
        onPointerLeave={() => {
          isPointed.value = false;
        }}
        onFocusIn={() => {
          isFocused.value = true;
        }}
        onFocusOut={() => {
          isFocused.value = false;
        }}
      >
        <table class="rows" aria-rowcount={rows.length + 1}>
          <thead>
            <tr aria-rowindex={1}>
              {sorting('recent', 'Last', 'c-time')}
              <th scope="col" class="c-verdict">
                Verdict
              </th>
              <th scope="col" class="c-from">
                From
              </th>
              <th scope="col">To</th>
              <th scope="col" class="c-what">
                What
              </th>
              <th scope="col" class="c-decider">
                Decided by
              </th>
              {sorting('count', 'Count', 'c-count')}
              {sorting('rate', 'A second', 'c-rate')}
              <th scope="col" class="c-why">
                <span class="visually-hidden">Reason</span>
              </th>
            </tr>
          </thead>
          <tbody onKeyDown={moveFocus}>
            {from > 0 && <Space rows={from} />}
            {rows.slice(from, to).map((row, at) => (
              <LiveRow
                key={row.id}
                row={row}
                index={from + at + 2}
                isChosen={chosen.value?.id === row.id}
                choose={() => {
                  chosen.value = row;
                }}
              />
            ))}
            {to < rows.length && <Space rows={rows.length - to} />}
          </tbody>
        </table>
        {rows.length === 0 && <NoRows traffic={traffic} />}
      </section>
      {chosen.value !== null && (
        <RowDetail
          row={chosen.value}
          filter={view.filter}
          onClose={() => {
            chosen.value = null;
          }}
        />
      )}
    </>
  );
}

type RowProps = {
  readonly row: Row;
  readonly index: number;
  readonly isChosen: boolean;
  readonly choose: () => void;
};

function LiveRow({ row, index, isChosen, choose }: RowProps) {
  const { outcome, message, from, to, subject, decider, time, rate } = row;
  const why = whyAddress(message);
  return (
    <tr class={`${outcome} ${isChosen ? 'is-chosen' : ''}`} aria-rowindex={index} onClick={choose}>
      <td class="number mono">{clockTime(time)}</td>
      <td>
        <VerdictMark verdict={outcome} {...(message.verdict === 'redirect' ? { word: 'inspected' } : {})} />
      </td>
      <td class="mono c-from" title={from}>
        {from}
      </td>
      <td class="mono" title={to}>
        <button type="button" class="row-open" data-row aria-label={`Details: ${from} to ${to}, ${subject}`}>
          {to}
        </button>
      </td>
      <td class="c-what" title={subject}>
        {subject}
      </td>
      <td class="c-decider" title={decider}>
        {decider}
      </td>
      <td class="number">{short(countOf(row))}</td>
      <td class="number c-rate">{rate === 0 ? '' : rate < 10 ? rate.toFixed(1) : short(Math.round(rate))}</td>
      <td class="c-why">{why !== null && <a href={why}>Why?</a>}</td>
    </tr>
  );
}

/** An empty area in place of the rows that are not rendered. */
const Space = ({ rows }: { readonly rows: number }) => (
  <tr class="space">
    <td colSpan={9} style={{ height: `${rows * ROW}px` }} />
  </tr>
);

function NoRows({ traffic }: { readonly traffic: Traffic }) {
  if (traffic.rows.size > 0)
    return <Empty>No row matches the words of the filter. {full(traffic.rows.size)} others are hidden.</Empty>;
  return (
    <Empty>
      {traffic.stream.state.value === 'live'
        ? 'No message yet. Open a connection through this node, or take something out of the filter.'
        : 'The first messages come when the stream is open.'}
    </Empty>
  );
}

/** Moves the focus to the next or previous row for an arrow key. */
function moveFocus(event: KeyboardEvent) {
  if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
  const buttons = [...(event.currentTarget as Element).querySelectorAll<HTMLElement>('[data-row]')];
  const at = buttons.indexOf(document.activeElement as HTMLElement);
  if (at === -1) return;
  event.preventDefault();
  buttons[at + (event.key === 'ArrowDown' ? 1 : -1)]?.focus();
}

function useHoldKey(isHeld: Signal<boolean>) {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== ' ' || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target instanceof Element && event.target.closest('input, textarea, select, button, summary, a'))
        return;
      event.preventDefault();
      isHeld.value = !isHeld.value;
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
}
