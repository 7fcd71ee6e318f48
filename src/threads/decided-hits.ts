import type { MessagePort } from 'node:worker_threads';
import type { DecidedHit } from '#contracts/datapath/grant-messages.js';

type Counted<By> = { readonly by: By; count: number; lastMs: number };

/**
 * Counts connections, HTTP requests or DNS lookups by the rule or default that decided them. `send` sends the
 * counts to the datapath thread, which adds them to the hits of the rule. There is one count for each rule
 * and generation, so the memory for the counts is bounded.
 */
export class DecidedHits<By> {
  #port: MessagePort | null = null;
  readonly #counts = new Map<number, Map<number | string, Counted<By>>>();

  /** `keyOf` must return the same key for equal rules or defaults, and different keys for different ones. */
  constructor(private readonly keyOf: (by: By) => number | string) {}

  /**
   * Sets the message port for `send`. While no port is set, `add` drops the counts of earlier generations,
   * so that the memory for the counts stays bounded.
   */
  sendBy(port: MessagePort | null): void {
    this.#port = port;
    port?.on('close', () => {
      if (this.#port === port) this.#port = null;
    });
  }

  /** Counts one decision: the rule or default `by` decided, in the policy with this generation. */
  add(generation: number, by: By): void {
    let counts = this.#counts.get(generation);
    if (counts === undefined) {
      if (this.#port === null) this.#counts.clear();
      counts = new Map();
      this.#counts.set(generation, counts);
    }
    const key = this.keyOf(by);
    const known = counts.get(key);
    if (known === undefined) counts.set(key, { by, count: 1, lastMs: performance.now() });
    else {
      known.count++;
      known.lastMs = performance.now();
    }
  }

  send(): void {
    if (this.#port === null || this.#counts.size === 0) return;
    const [nowNs, nowMs] = [process.hrtime.bigint(), performance.now()];
    const hits: DecidedHit<By>[] = [];
    for (const [generation, counts] of this.#counts) {
      for (const { by, count, lastMs } of counts.values())
        hits.push({ generation, by, count, lastNs: nowNs - BigInt(Math.round((nowMs - lastMs) * 1e6)) });
    }
    this.#counts.clear();
    this.#port.postMessage({ hits });
  }
}
