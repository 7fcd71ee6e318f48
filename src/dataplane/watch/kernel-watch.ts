import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { EventFact, EventSource } from '#contracts/event-source.js';
import { Bell } from '#libc/bell.js';
import { built } from '#threads/built-file.js';
import type { News } from './kernel-notifications.js';

/** Words that both sides see. */
export const EAR = { end: 0, ended: 1, batchesTaken: 2, words: 3 } as const;

/** Descriptors of the maps that the ear reads; they must stay open until it ended. */
export type EarMaps = {
  readonly events: number;
  readonly ringBytes: number;
  readonly counters: number;
  readonly active: number;
};
export type EarInput = {
  readonly bellFd: number;
  readonly shared: Int32Array;
  readonly maps: EarMaps;
  readonly batches: MessagePort;
};

const END_TIMEOUT_MS = 5_000;

/** A thread that sleeps in the kernel until there is news. `onFailure`: it has ended. */
export class Ear {
  readonly source: EventSource;
  readonly #facts: MessagePort;
  readonly #bell = new Bell();
  readonly #shared = new Int32Array(new SharedArrayBuffer(EAR.words * 4));
  readonly #worker: Worker;

  constructor(maps: EarMaps, onNews: (news: News) => void, onFailure: (failure: Error) => void) {
    const { port1, port2 } = new MessageChannel();
    const facts = new MessageChannel();
    this.#facts = facts.port1;
    const taken = new Int32Array(this.#shared.buffer, EAR.batchesTaken * 4, 1);
    this.source = { batches: port1, facts: facts.port2, taken };
    const workerData: EarInput = { bellFd: this.#bell.fd, shared: this.#shared, maps, batches: port2 };
    this.#worker = new Worker(built('src/dataplane/watch/kernel-watch.worker.js'), {
      workerData,
      transferList: [port2],
      execArgv: [],
    });
    this.#worker.on('message', onNews);
    this.#worker.on('error', (failure) => {
      // A thread that could not start does not say so itself.
      Atomics.store(this.#shared, EAR.ended, 1);
      onFailure(failure);
    });
  }

  /** Tells whoever takes the events. */
  tell(fact: EventFact): void {
    this.#facts.postMessage(fact);
  }

  /** Returns once the thread has let go of everything. */
  end(): void {
    this.#facts.close();
    this.#worker.removeAllListeners('message');
    Atomics.store(this.#shared, EAR.end, 1);
    this.#bell.ring();
    if (Atomics.wait(this.#shared, EAR.ended, 0, END_TIMEOUT_MS) === 'timed-out')
      throw new Error('the ear does not end');
    this.#bell.close();
  }
}
