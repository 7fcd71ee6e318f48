import type { Outbox } from '#observe/findings/store/outbox.js';
import { type Backoff, DeliveryQueue, type SinkState } from './delivery-queue.js';
import { createFileSink, type FileSinkOptions } from './file-sink.js';
import type { Sink, SinkName } from './sink.js';
import { createWebhookSink, type WebhookOptions } from './webhook-sink.js';

export type SinkOptions = { readonly file: FileSinkOptions | null; readonly webhook: WebhookOptions | null };

export type Sinks = {
  readonly states: readonly SinkState[];
  /**
   * Stops all sinks, and waits for their deliveries in progress. Call this before the finding store is
   * closed.
   */
  close(): Promise<void>;
};

const BACKOFF: Backoff = { firstMs: 1_000, longestMs: 60_000 };

export function sinkNames({ file, webhook }: SinkOptions): SinkName[] {
  return [...(file === null ? [] : ['file' as const]), ...(webhook === null ? [] : ['webhook' as const])];
}

/**
 * Delivers every change of a finding to the configured sinks, at least once and in order. Each delivery
 * contains the increase of the finding's count. Changes that a sink (file or webhook for findings) does not
 * accept stay in the outbox. `onState` is called when a sink begins to fail, fails for another reason, or
 * recovers.
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
