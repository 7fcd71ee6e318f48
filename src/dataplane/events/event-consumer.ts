import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { EventFact, EventSource } from '#contracts/datapath/event-source.js';
import { EventBatch, type PackedEvents } from './batch.js';
import type { Surroundings } from './surroundings.js';

/**
 * Returns the message ports of an event source. A thread that posts the source to another thread must put
 * these ports into the transfer list.
 */
export function portsOf({ batches, facts }: EventSource): readonly MessagePort[] {
  return [batches, facts];
}

/**
 * Receives event batches from an event source, in the thread that consumes them, until the source or the
 * datapath is closed. Before it passes on a batch, the consumer reads the facts (rule names and interface
 * names) to which the events of the batch refer.
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
        // Node.js does not keep the order between messages on two ports. Read the facts before the batch, or
        // the rule names of the batch may be missing.
        this.learn();
        onBatch(new EventBatch(packed));
      } finally {
        Atomics.add(taken, 0, 1);
      }
    });
  }

  /**
   * Reads the rule names and interface names that have arrived. The consumer also calls this method when a
   * batch arrives. While no batch arrives, the owner of the consumer must call it to get new names.
   */
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
