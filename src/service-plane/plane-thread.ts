import { fileURLToPath } from 'node:url';
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { SeenConnections } from '#policy/seen-connection.js';
import { Handover } from '#sockets/handover.js';
import type { Asks, FromThread, Given, GivenToSplice, ToThread } from './messages.js';

/** Worker threads run built code, also where the sources are loaded directly. */
const here = fileURLToPath(new URL('.', import.meta.url));
const built = here.includes('/dist/src/service-plane/')
  ? here
  : fileURLToPath(new URL('../../dist/src/service-plane/', import.meta.url));

type Waiting = { readonly resolve: (value: unknown) => void; readonly reject: (failure: Error) => void };

/** One thread of the service plane, and the one that carries the bytes of what it decided. */
export class PlaneThread {
  readonly #worker: Worker;
  readonly #splicer: Worker;
  readonly #handover = new Handover();
  #stopped: Promise<void> | null = null;
  #isOver = false;
  #lastId = 0;
  #waiting = new Map<number, Waiting>();

  constructor(
    given: Omit<Given, 'splices'>,
    private readonly listener: {
      readonly onSeen: (seen: SeenConnections) => void;
      /** Not where it was ended. */
      readonly onDeath: (reason: string) => void;
    },
  ) {
    const { port1, port2 } = new MessageChannel();
    const handover = this.#handover.shared;
    this.#worker = this.#start('worker.js', { ...given, splices: { port: port1, handover } } satisfies Given, port1);
    this.#splicer = this.#start('splice-worker.js', { port: port2, handover } satisfies GivenToSplice, port2);
    this.#worker.on('message', (message: FromThread) => this.#hear(message));
  }

  /** Whether it has ended. */
  get isOver(): boolean {
    return this.#isOver;
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
    await this.#stop();
    this.#failAll('the service plane was closed');
  }

  #start(name: string, workerData: unknown, port: MessagePort): Worker {
    const worker = new Worker(`${built}${name}`, { workerData, transferList: [port], execArgv: [] });
    let reason: string | null = null;
    worker.on('error', (failure) => {
      reason = failure.message;
    });
    worker.on('exit', (code) => this.#died(reason ?? `a thread of the service plane ended with ${code}`));
    return worker;
  }

  /** Neither is of use without the other. */
  #stop(): Promise<void> {
    this.#stopped ??= (async () => {
      const stopped = [this.#worker, this.#splicer].map((worker) => worker.terminate());
      this.#handover.ring();
      await Promise.all(stopped);
      this.#handover.close();
    })();
    return this.#stopped;
  }

  #hear(message: FromThread): void {
    if (message.kind === 'seen') {
      this.listener.onSeen(message.seen);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.kind === 'answer') waiting?.resolve(message.value);
    else waiting?.reject(new Error(message.message));
  }

  #died(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#failAll(reason);
    void this.#stop();
    this.listener.onDeath(reason);
  }

  #failAll(reason: string): void {
    const waiting = this.#waiting;
    this.#waiting = new Map();
    for (const { reject } of waiting.values()) reject(new Error(reason));
  }
}
