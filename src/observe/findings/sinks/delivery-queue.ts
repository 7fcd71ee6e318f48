import { setTimeout as pass } from 'node:timers/promises';
import { backoffMs } from '#contracts/backoff.js';
import { shownFinding } from '#observe/findings/finding-json.js';
import type { Outbox } from '#observe/findings/store/outbox.js';
import type { DeliveredFinding, Sink, SinkName } from './sink.js';

/**
 * How long the queue waits after a failed delivery. The time is `firstMs` after the first failure, and
 * doubles with each further failure up to `longestMs`. The queue waits for a random 50 % to 100 % of the
 * time.
 */
export type Backoff = { readonly firstMs: number; readonly longestMs: number };

export type SinkState = {
  readonly name: SinkName;
  /** Number of findings delivered to the sink (file or webhook for findings) since this queue was created. */
  readonly delivered: number;
  /** Number of failed deliveries since this queue was created. */
  readonly failed: number;
  /**
   * `dropped`: number of changes that the outbox dropped for the sink (file or webhook for findings) since
   * the finding store was opened. `waiting`: number of changes that wait for delivery.
   */
  readonly dropped: number;
  readonly waiting: number;
  /** Why the last delivery failed. Null after a successful delivery, and before the first delivery. */
  readonly failure: string | null;
};

const AT_ONCE = 100;

/** Delivers the changes of the outbox to one sink (file or webhook for findings) in order, until `stop`. */
export class DeliveryQueue {
  readonly #outbox: Outbox;
  readonly #sink: Sink;
  readonly #nodeId: string;
  readonly #backoff: Backoff;
  readonly #onState: (state: SinkState) => void;
  readonly #stopped = new AbortController();
  readonly #over: Promise<void>;
  #delivered = 0;
  #failed = 0;
  #failure: string | null = null;
  #hasNotifications = true;
  #wake = (): void => {};

  constructor(outbox: Outbox, sink: Sink, nodeId: string, backoff: Backoff, onState: (state: SinkState) => void) {
    this.#outbox = outbox;
    this.#sink = sink;
    this.#nodeId = nodeId;
    this.#backoff = backoff;
    this.#onState = onState;
    const unwatch = outbox.watch(() => {
      this.#hasNotifications = true;
      this.#wake();
    });
    this.#over = this.#run().finally(unwatch);
  }

  get state(): SinkState {
    const { name } = this.#sink;
    const [delivered, failed, failure] = [this.#delivered, this.#failed, this.#failure];
    return { name, delivered, failed, failure, ...this.#outbox.progressOf(name) };
  }

  /**
   * Stops the deliveries, and cancels a delivery in progress. The changes of a cancelled delivery stay in the
   * outbox; the next queue for the sink (file or webhook for findings) delivers them again.
   */
  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#wake();
    await this.#over;
  }

  async #run(): Promise<void> {
    let failures = 0;
    while (!this.#stopped.signal.aborted) {
      try {
        const delivered = await this.#deliverSome();
        failures = 0;
        if (delivered > 0) this.#note(null);
        else await this.#notifications();
      } catch (error) {
        if (this.#stopped.signal.aborted) return;
        this.#failed++;
        this.#note(error instanceof Error ? error.message : 'it failed');
        const { firstMs, longestMs } = this.#backoff;
        const waitMs = backoffMs(failures, firstMs, longestMs) * (0.5 + Math.random() / 2);
        failures++;
        await pass(waitMs, undefined, { signal: this.#stopped.signal, ref: false }).catch(() => undefined);
      }
    }
  }

  async #deliverSome(): Promise<number> {
    this.#hasNotifications = false;
    const { items, next } = await this.#outbox.read(this.#sink.name, AT_ONCE);
    if (items.length === 0) return 0;
    const told = items.map(
      ({ position, finding, newCount }): DeliveredFinding => ({
        ...shownFinding(finding, this.#nodeId),
        position,
        new_count: newCount,
      }),
    );
    await this.#sink.deliver(told, this.#stopped.signal);
    await this.#outbox.acknowledge(this.#sink.name, next);
    this.#delivered += items.length;
    return items.length;
  }

  async #notifications(): Promise<void> {
    if (this.#hasNotifications || this.#stopped.signal.aborted) return;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
  }

  /**
   * Reports to `onState` when deliveries begin to fail, fail for another reason, or succeed again. A repeated
   * failure is not reported again.
   */
  #note(failure: string | null): void {
    if (failure === this.#failure) return;
    this.#failure = failure;
    this.#onState(this.state);
  }
}
