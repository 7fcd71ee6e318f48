import type { Stream } from '../api/stream.js';
import { span } from '../format.js';
import { now } from './time.js';

const WORDS = {
  connecting: 'connecting…',
  live: 'live',
  switched_off: 'performance mode is off',
  refused: 'the node refuses the filter',
  token_ended: 'the session has ended',
} as const;

/** Shows by a word and a symbol whether a stream is connected, with a button to reconnect at once. */
export function StreamMark({ stream }: { readonly stream: Stream }) {
  const state = stream.state.value;
  const retryAt = stream.retryAt.value;
  return (
    <span class={`stream-mark ${state}`} role="status">
      <svg viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
        {state === 'live' ? (
          <circle cx="5" cy="5" r="4.5" fill="currentColor" />
        ) : (
          <circle cx="5" cy="5" r="3.7" fill="none" stroke="currentColor" stroke-width="1.6" />
        )}
      </svg>
      {state === 'waiting' ? (
        <>
          not live: again {retryAt === null ? 'soon' : `in ${span(Math.max(0, (retryAt - now.value) / 1_000))}`}
          <button type="button" class="plain" onClick={stream.again}>
            Connect now
          </button>
        </>
      ) : (
        WORDS[state]
      )}
    </span>
  );
}
