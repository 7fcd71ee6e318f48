/**
 * Releases memory once after a large task, when the thread has had no task for `quietMs` milliseconds. A task
 * that arrives before the end of this time postpones the release.
 */
export class QuietRelease {
  #isDue = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly release: () => void,
    private readonly quietMs: number,
  ) {}

  /** Must be called after each task of the thread. `isLarge`: whether the task used much memory. */
  taskEnded({ isLarge }: { readonly isLarge: boolean }): void {
    clearTimeout(this.#timer);
    this.#isDue ||= isLarge;
    if (this.#isDue) this.#timer = setTimeout(() => this.#run(), this.quietMs).unref();
  }

  #run(): void {
    this.#isDue = false;
    this.release();
  }
}
