import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { EventFact, EventSource } from '#contracts/event-source.js';
import { EventBatch, type PackedEvents } from './batch.js';
import type { Surroundings } from './surroundings.js';

/** Ports that are sent along with a source. */
export function portsOf({ batches, facts }: EventSource): readonly MessagePort[] {
  return [batches, facts];
}

/** Takes what a source gives until it is closed, or the datapath is. Facts are learned before the events that need them. */
export class EventConsumer {
  readonly #source: EventSource;
  readonly #surroundings: Surroundings;

  constructor(source: EventSource, surroundings: Surroundings, onBatch: (batch: EventBatch) => void) {
    this.#source = source;
    this.#surroundings = surroundings;
    const { batches, taken } = source;
    batches.on('message', (packed: PackedEvents) => {
      try {
        // Between two ports nobody else keeps the order.
        this.learn();
        onBatch(new EventBatch(packed));
      } finally {
        Atomics.add(taken, 0, 1);
      }
    });
  }

  /** Learns what was told until now; without events nobody else does. */
  learn(): void {
    const { facts } = this.#source;
    for (let next = receiveMessageOnPort(facts); next !== undefined; next = receiveMessageOnPort(facts))
      this.#surroundings.learn((next as { readonly message: EventFact }).message);
  }

  close(): void {
    this.#source.batches.close();
    this.#source.facts.close();
  }
}
