import type { Signal } from '@preact/signals';
import { full, short } from '../../format.js';
import { addressOf } from '../../router.js';
import { Failure } from '../../ui/parts.js';
import { EnablePerformanceMode } from '../../ui/performance-mode.js';
import { StreamMark } from '../../ui/stream-mark.js';
import { Ago } from '../../ui/time.js';
import type { Traffic } from './stream.js';

/** Texts for the places where messages can be lost. */
const PLACES: Readonly<Record<string, string>> = {
  reader: 'this page was too slow',
  kernel: 'the kernel saw more than the node took',
  source_share: 'a source sent more than its share',
  dns: 'too many different lookups',
  service_plane: 'too many inspected connections',
};

const INTERRUPTED: Readonly<Record<number, string>> = {
  1013: 'The node has too many readers with different filters.',
  1008: 'This page read nothing for a minute, and the node ended its stream.',
};

/** Shows whether the stream is connected, and which messages were lost. */
export function StreamState({ traffic, isHeld }: { readonly traffic: Traffic; readonly isHeld: Signal<boolean> }) {
  const { rows, painted, stream } = traffic;
  void painted.value;
  const state = stream.state.value;
  if (state === 'switched_off') return <SwitchedOff onEnabled={stream.again} />;
  if (state === 'refused') return <Failure failure={stream.refusal.value} />;
  const lost = [...rows.lost].reduce((sum, [, count]) => sum + count, 0);
  return (
    <div class="stream-state">
      <StreamMark stream={stream} />
      <span>
        <strong>{rows.rate < 10 ? rows.rate.toFixed(1) : short(Math.round(rows.rate))}</strong> messages a second
      </span>
      <span class="muted">
        {full(rows.seen)} since <Ago at={rows.since} />, {full(rows.size)} different
      </span>
      <span class={lost > 0 ? 'is-audit' : 'muted'}>
        {full(lost)} lost
        {lost > 0 &&
          ` (${[...rows.lost].map(([place, count]) => `${PLACES[place] ?? place}: ${full(count)}`).join('; ')})`}
      </span>
      {rows.removed > 0 && (
        <span class="muted">{full(rows.removed)} old rows gave way: a filter keeps what you look for.</span>
      )}
      {state === 'waiting' && (
        <span>{INTERRUPTED[stream.closeCode.value ?? 0] ?? 'Messages of this time are missing.'}</span>
      )}
      {[...rows.silentNodes].map(([node, reason]) => (
        <span key={node} class="is-audit">
          no messages of {node}: {reason}
        </span>
      ))}
      <button
        type="button"
        class="hold"
        aria-pressed={isHeld.value}
        onClick={() => {
          isHeld.value = !isHeld.value;
        }}
      >
        Hold <kbd>Space</kbd>
      </button>
    </div>
  );
}

function SwitchedOff({ onEnabled }: { readonly onEnabled: () => void }) {
  return (
    <div class="switched-off" role="status">
      <p>
        <strong>The live view is dark, because performance mode is off.</strong> The node enforces its policy as before.
        Live messages of this time are lost, and denied packets become no finding. The open flows are still shown.
      </p>
      <span class="actions">
        <EnablePerformanceMode onEnabled={onEnabled} />
        <a class="button" href={addressOf('traffic', { tab: 'flows' })}>
          Show the open flows
        </a>
      </span>
    </div>
  );
}
