import { type ReadonlySignal, signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { NoResponse } from './client.js';

export type Polled<T> = {
  /** The latest value; null before the first response. A failure keeps the earlier value. */
  readonly data: ReadonlySignal<T | null>;
  readonly failure: ReadonlySignal<unknown>;
  /** Sends the request at once, without the wait. */
  readonly again: () => void;
};

/**
 * Calls `ask` repeatedly while the page is visible, with a pause of `everyMs` after each response; only once
 * if `everyMs` is null. If `key` changes, discards the value and calls `ask` at once.
 */
export function usePolled<T>(ask: (signal: AbortSignal) => Promise<T>, everyMs: number | null, key = ''): Polled<T> {
  const poll = useMemo(() => {
    const data = signal<T | null>(null);
    const failure = signal<unknown>(null);
    let timer: ReturnType<typeof setTimeout> | undefined;
    let running = new AbortController();
    const run = async () => {
      running.abort();
      const mine = new AbortController();
      running = mine;
      clearTimeout(timer);
      try {
        const value = await ask(mine.signal);
        if (mine.signal.aborted) return;
        data.value = value;
        failure.value = null;
      } catch (error) {
        if (mine.signal.aborted) return;
        // Keep the earlier value if the node does not respond: a bar on the page (`SilentBar`) already
        // reports that.
        if (!(error instanceof NoResponse) || data.value === null) failure.value = error;
      }
      if (everyMs !== null) timer = setTimeout(() => void tick(), everyMs);
    };
    const tick = async () => {
      if (document.visibilityState === 'visible') return run();
      document.addEventListener('visibilitychange', () => void tick(), { once: true, signal: running.signal });
    };
    const stop = () => {
      running.abort();
      clearTimeout(timer);
    };
    return { data, failure, again: () => void run(), stop };
  }, [key, everyMs]);
  useEffect(() => {
    poll.again();
    return poll.stop;
  }, [poll]);
  return poll;
}
