/** Ticks of the clock after which what does not move is given up. */
const IDLE_TICKS = 60;
/** And after which a head must be complete, however slowly it moves. */
const HEAD_TICKS = 6;
/** Then the server's side goes to whoever needs one: an idle client takes no more than its own. */
const RESTING_TICKS = 1;

/** For how long nothing moved, and a head has been on its way. */
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

  /** Whether it is over, and why. To be asked at every tick. */
  over(isInsideHead: boolean): 'idle' | 'head_late' | null {
    const { tick } = this.clock;
    if (!isInsideHead) this.#headSince = tick;
    if (tick - this.#movedAt > IDLE_TICKS) return 'idle';
    return tick - this.#headSince > HEAD_TICKS ? 'head_late' : null;
  }
}
