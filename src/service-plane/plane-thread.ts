import { fileURLToPath } from 'node:url';
import { type MessagePort, Worker } from 'node:worker_threads';
import type { SeenConnections } from '#policy/seen-connection.js';
import type { Asks, FromThread, Given, ToThread } from './messages.js';

/** Worker threads run built code, also where the sources are loaded directly. */
const here = fileURLToPath(new URL('.', import.meta.url));
const builtWorker = here.includes('/dist/src/service-plane/')
  ? `${here}worker.js`
  : fileURLToPath(new URL('../../dist/src/service-plane/worker.js', import.meta.url));

type Waiting = { readonly resolve: (value: unknown) => void; readonly reject: (failure: Error) => void };

/** One thread of the service plane. */
export class PlaneThread {
  readonly #worker: Worker;
  #isOver = false;
  #lastId = 0;
  #waiting = new Map<number, Waiting>();

  constructor(
    given: Given,
    private readonly listener: {
      readonly onSeen: (seen: SeenConnections) => void;
      /** Not where it was ended. */
      readonly onDeath: (reason: string) => void;
    },
  ) {
    const worker = new Worker(builtWorker, { workerData: given, execArgv: [] });
    let reason: string | null = null;
    worker.on('message', (message: FromThread) => this.#hear(message));
    worker.on('error', (failure) => {
      reason = failure.message;
    });
    worker.on('exit', (code) => this.#died(reason ?? `a thread of the service plane ended with ${code}`));
    this.#worker = worker;
  }

  post(message: ToThread, transferred: readonly MessagePort[] = []): void {
    if (!this.#isOver) this.#worker.postMessage(message, transferred);
  }

  ask<K extends keyof Asks>(what: K): Promise<Asks[K]> {
    if (this.#isOver) return Promise.reject(new Error('the thread has ended'));
    const id = ++this.#lastId;
    return new Promise<Asks[K]>((resolve, reject) => {
      this.#waiting.set(id, { resolve: (value) => resolve(value as Asks[K]), reject });
      this.post({ kind: 'ask', id, what });
    });
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#worker.terminate();
    this.#failAll('the service plane was closed');
  }

  #hear(message: FromThread): void {
    if (message.kind === 'seen') return this.listener.onSeen(message.seen);
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.kind === 'answer') waiting?.resolve(message.value);
    else waiting?.reject(new Error(message.message));
  }

  #died(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#failAll(reason);
    this.listener.onDeath(reason);
  }

  #failAll(reason: string): void {
    const waiting = this.#waiting;
    this.#waiting = new Map();
    for (const { reject } of waiting.values()) reject(new Error(reason));
  }
}
