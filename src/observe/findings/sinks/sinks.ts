import type { Outbox } from '../outbox.js';
import { type Backoff, DeliveryQueue, type SinkState } from './courier.js';
import { createFileSink, type FileSinkOptions } from './file-sink.js';
import type { Sink, SinkName } from './sink.js';
import { createWebhookSink, type WebhookOptions } from './webhook-sink.js';

export type SinkOptions = { readonly file: FileSinkOptions | null; readonly webhook: WebhookOptions | null };

export type Sinks = {
  readonly states: readonly SinkState[];
  /** Waits for what is under way to end. Close it before the ledger. */
  close(): Promise<void>;
};

const BACKOFF: Backoff = { firstMs: 1_000, longestMs: 60_000 };

/** The names that the ledger must be opened with. */
export function sinkNames({ file, webhook }: SinkOptions): SinkName[] {
  return [...(file === null ? [] : ['file' as const]), ...(webhook === null ? [] : ['webhook' as const])];
}

/**
 * Tells the configured sinks of every finding that a merge changed, at least once and in the order of the merges, each with
 * what its count grew by. What a sink does not take waits in the ledger. `onState` hears when one begins to fail, fails
 * otherwise, and works again.
 */
export function createSinks(
  outbox: Outbox,
  { file, webhook }: SinkOptions,
  nodeId: string,
  onState: (state: SinkState) => void,
  backoff: Backoff = BACKOFF,
): Sinks {
  const sinks: Sink[] = [
    ...(file === null ? [] : [createFileSink(file)]),
    ...(webhook === null ? [] : [createWebhookSink(webhook)]),
  ];
  const couriers = sinks.map((sink) => new DeliveryQueue(outbox, sink, nodeId, backoff, onState));
  return {
    get states() {
      return couriers.map(({ state }) => state);
    },
    async close() {
      await Promise.all(couriers.map((courier) => courier.stop()));
    },
  };
}
