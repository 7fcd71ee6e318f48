/** The idle timeout of a connection or stream, in ticks. */
const IDLE_TICKS = 60;
/** The time within which a head must be complete, however slowly it arrives, in ticks. */
const HEAD_TICKS = 6;
/**
 * After this many idle ticks, the server link is given back to the pool: an idle client then occupies only
 * its own connection.
 */
const RESTING_TICKS = 1;

/** Measures how long nothing moved, and how long an incomplete head has been arriving. */
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

  /** Returns why the time is over; null: it is not. To be called at every tick. */
  over(isInsideHead: boolean): 'idle' | 'head_late' | null {
    const { tick } = this.clock;
    if (!isInsideHead) this.#headSince = tick;
    if (tick - this.#movedAt > IDLE_TICKS) return 'idle';
    return tick - this.#headSince > HEAD_TICKS ? 'head_late' : null;
  }
}
