/**
 * The longest time for which a test that acts each millisecond did not get the processor. A bound in
 * milliseconds is extended by this time, because the machine kept the node from running as well.
 */
export class LongestGap {
  #last = performance.now();
  #longest = 0;

  tick(): void {
    const now = performance.now();
    this.#longest = Math.max(this.#longest, now - this.#last);
    this.#last = now;
  }

  get ms(): number {
    return this.#longest;
  }
}
