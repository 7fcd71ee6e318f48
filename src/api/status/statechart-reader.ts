import type { WebSocket } from 'ws';
import type { Inspection, Statecharts, StatechartTransition } from '#bus/statecharts.js';
import { shownTransition } from './shown-transition.js';

/**
 * The limit of bytes that wait to be sent to one reader. Above this limit, further messages to the reader are
 * dropped.
 */
const WAITING_BYTES = 1 << 20;
/** A reader that lost more than this many messages in a row is disconnected. */
const MAX_DROPPED = 1_000;
const MAX_READERS = 32;
const POLICY_VIOLATION = 1008;
const TRY_AGAIN_LATER = 1013;

type Limits = { readonly waitingBytes: number; readonly mostDropped: number; readonly mostReaders: number };

/**
 * `open` is the current number of readers. `dropped` and `cutOff` count dropped messages and disconnected
 * readers since the start of the process.
 */
export type ReaderCounts = { readonly open: number; readonly dropped: number; readonly cutOff: number };

/**
 * The clients that inspect the statecharts. Each client first receives all running actors and the latest
 * transitions of each, and then every statechart event. A client that reads too slowly loses messages.
 */
export class StatechartReaders {
  #open = 0;
  #dropped = 0;
  #cutOff = 0;

  constructor(
    readonly statecharts: Statecharts,
    readonly limits: Limits = { waitingBytes: WAITING_BYTES, mostDropped: MAX_DROPPED, mostReaders: MAX_READERS },
  ) {}

  get counts(): ReaderCounts {
    return { open: this.#open, dropped: this.#dropped, cutOff: this.#cutOff };
  }

  add(socket: WebSocket): void {
    if (this.#open >= this.limits.mostReaders) {
      socket.close(TRY_AGAIN_LATER, 'too many readers');
      return;
    }
    this.#open++;
    let dropped = 0;
    const introduce = (): void => {
      for (const inspection of this.statecharts.actors()) socket.send(JSON.stringify(inspection));
    };
    const tell = (seen: Inspection | StatechartTransition): void => {
      if (socket.readyState !== socket.OPEN) return;
      if (socket.bufferedAmount > this.limits.waitingBytes) {
        dropped++;
        this.#dropped++;
        if (dropped > this.limits.mostDropped) this.#cut(socket, dropped);
        return;
      }
      if (dropped > 0) {
        socket.send(JSON.stringify({ type: 'lost', count: dropped }));
        dropped = 0;
        // Send all actors with their snapshots again, because the reader has lost messages and may show
        // outdated states.
        introduce();
        if (seen.type === '@xstate.actor' || seen.type === '@xstate.snapshot') return;
      }
      socket.send(JSON.stringify(seen.type === 'transition' ? shownTransition(seen) : seen));
    };
    introduce();
    const transitions = this.statecharts.transitions().map(shownTransition);
    socket.send(JSON.stringify({ type: 'recent_transitions', transitions }));
    const unwatch = this.statecharts.watch(tell);
    socket.once('close', () => {
      unwatch();
      this.#open--;
    });
  }

  #cut(socket: WebSocket, dropped: number): void {
    this.#cutOff++;
    socket.close(POLICY_VIOLATION, `too slow: ${dropped} messages were lost`);
  }
}
