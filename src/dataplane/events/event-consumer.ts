import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { EventFact, EventSource } from '#contracts/event-source.js';
import { EventBatch, type PackedEvents } from './batch.js';
import type { Surroundings } from './surroundings.js';

/** The ports to transfer together with a source. */
export function portsOf({ batches, facts }: EventSource): readonly MessagePort[] {
  return [batches, facts];
}

/**
 * Passes on the batches of a source until the source or the datapath is closed. Facts are learned before the
 * events that need them.
 */
export class EventConsumer {
  readonly #source: EventSource;
  readonly #surroundings: Surroundings;

  constructor(source: EventSource, surroundings: Surroundings, onBatch: (batch: EventBatch) => void) {
    this.#source = source;
    this.#surroundings = surroundings;
    const { batches, taken } = source;
    batches.on('message', (packed: PackedEvents) => {
      try {
        // Node.js does not keep the order between two ports: read the facts first, so that the batch finds
        // its rule names.
        this.learn();
        onBatch(new EventBatch(packed));
      } finally {
        Atomics.add(taken, 0, 1);
      }
    });
  }

  /** Reads the facts that have arrived. Without events, only the caller of this method reads them. */
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
