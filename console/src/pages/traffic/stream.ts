import { signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { type Stream, useStream } from '../../api/stream.js';
import type { Message } from './message.js';
import { TrafficRows } from './rows.js';

const PATH = '/api/v1/wiretap/stream';
const PAINT_MS = 250;
/** The node combines equal messages within this time into one message with a count. */
const FOLD = '250ms';
const RATE_MS = 1_000;

/** The rows made of the live messages, and their stream. */
export type Traffic = {
  readonly rows: TrafficRows;
  /** A counter that increases at most four times a second, if the rows have changed. */
  readonly painted: { readonly value: number };
  readonly stream: Stream;
};

/** Opens the wiretap stream with the query of a filter. A change of the query removes all rows. */
export function useTraffic(query: string): Traffic {
  const { rows, painted } = useMemo(() => ({ rows: new TrafficRows(), painted: signal(0) }), [query]);
  const stream = useStream({
    path: `${PATH}?${[query, `fold=${FOLD}`].filter(Boolean).join('&')}`,
    protocol: 'weir.wiretap.v1',
    replay: '10s',
    receive: (frame) => {
      const at = Date.now();
      if (Array.isArray(frame)) for (const message of frame as readonly Message[]) rows.add(message, at);
      else rows.add(frame as Message, at);
    },
  });
  useEffect(() => {
    let ratedAt = 0;
    let paintedVersion = -1;
    const timer = setInterval(() => {
      const at = Date.now();
      if (at - ratedAt >= RATE_MS) {
        rows.rateAt(at);
        ratedAt = at;
      }
      if (document.visibilityState !== 'visible' || rows.version === paintedVersion) return;
      paintedVersion = rows.version;
      painted.value++;
    }, PAINT_MS);
    return () => clearInterval(timer);
  }, [rows]);
  return { rows, painted, stream };
}
