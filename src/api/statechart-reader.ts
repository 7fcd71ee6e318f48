import type { WebSocket } from 'ws';
import type { Inspection, Statecharts } from '#bus/statecharts.js';

/** Bytes that may wait for a slow reader; more are dropped. */
const WAITING_BYTES = 1 << 20;
/** A reader with this many dropped messages is disconnected. */
const MOST_DROPPED = 1_000;
const MOST_READERS = 32;
const POLICY_VIOLATION = 1008;
const TRY_AGAIN_LATER = 1013;

type Limits = { readonly waitingBytes: number; readonly mostDropped: number; readonly mostReaders: number };

/** Counts since the start of the process. */
export type ReaderCounts = { readonly open: number; readonly dropped: number; readonly cutOff: number };

/** Readers of statechart inspection. Each receives all running actors first, and then every event. */
export class StatechartReaders {
  #open = 0;
  #dropped = 0;
  #cutOff = 0;

  constructor(
    readonly statecharts: Statecharts,
    readonly limits: Limits = { waitingBytes: WAITING_BYTES, mostDropped: MOST_DROPPED, mostReaders: MOST_READERS },
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
    const tell = (inspection: Inspection): void => {
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
        // A reader that lost messages has outdated states, so it receives all actors with their snapshots
        // again.
        introduce();
        if (inspection.type !== '@xstate.event') return;
      }
      socket.send(JSON.stringify(inspection));
    };
    introduce();
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
