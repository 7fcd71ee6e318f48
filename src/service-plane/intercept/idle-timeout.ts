/** The idle timeout of a connection or stream, in ticks of five seconds. */
const IDLE_TICKS = 60;
/**
 * The idle timeout after the client has closed its direction, in ticks of five seconds. This timeout is
 * shorter, because a FIN does not show whether the client still reads or has closed the whole connection.
 */
const HALF_CLOSED_TICKS = 12;
/** The maximum time from the first byte to the end of a message head, in ticks of five seconds. */
const HEAD_TICKS = 6;
/**
 * The idle time after which a session returns its connection to the server to the pool, in ticks of five
 * seconds. An idle client then occupies no connection to a server.
 */
const RESTING_TICKS = 1;

/**
 * Measures for how long a connection or stream was idle, and for how long a message head has been incomplete.
 */
export class IdleTimeout {
  #movedAt: number;
  #headSince: number;

  constructor(private readonly clock: { readonly tick: number }) {
    this.#movedAt = this.#headSince = clock.tick;
  }

  moved(): void {
    this.#movedAt = this.clock.tick;
  }

  get isResting(): boolean {
    return this.clock.tick - this.#movedAt > RESTING_TICKS;
  }

  /**
   * Returns which timeout has expired; null if no timeout has expired. The session must call this method at
   * every tick.
   */
  over({
    isInsideHead = false,
    isHalfClosed = false,
  }: {
    readonly isInsideHead?: boolean;
    readonly isHalfClosed?: boolean;
  }): 'idle' | 'head_late' | null {
    const { tick } = this.clock;
    if (!isInsideHead) this.#headSince = tick;
    if (tick - this.#movedAt > (isHalfClosed ? HALF_CLOSED_TICKS : IDLE_TICKS)) return 'idle';
    return tick - this.#headSince > HEAD_TICKS ? 'head_late' : null;
  }
}
