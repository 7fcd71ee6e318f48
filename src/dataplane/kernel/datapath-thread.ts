import { MessageChannel, type MessagePort, type Transferable, Worker } from 'node:worker_threads';
import {
  type Datapath,
  type DatapathChange,
  type EventsWanted,
  type FlowFilter,
  type FlowQuery,
  NO_EVENTS,
} from '#dataplane/datapath.js';
import { type EventSource, portsOf } from '#dataplane/events/source.js';
import type { FlowsCut } from './accounts.js';
import { builtWorker } from './built.js';
import { DatapathFailure, type Method, type Reply, type Request, receive, type WorkerInput } from './messages.js';
import type { DatapathOptions } from './options.js';

export { type DatapathOptions, DEFAULT_TIMEOUTS_MS } from './options.js';

/**
 * The datapath, in a thread of its own: its calls block, and the event loop must not. The thread begins with the
 * first call and ends with `close`; what is pinned stays without it. A thread that dies fails every call
 * in flight, tells `watch`, and a new one begins with the next call, which must be `open`.
 */
export function openDatapath(options: DatapathOptions): Datapath {
  return new DatapathThread(options);
}

const CUT_AT_ONCE = 2_048;

type Waiting = { resolve(value: unknown): void; reject(error: Error): void };

class DatapathThread implements Datapath {
  readonly #options: DatapathOptions;
  readonly #listeners = new Set<(change: DatapathChange) => void>();
  #taker: ((source: EventSource) => void) | undefined;
  #eventsWanted: EventsWanted = NO_EVENTS;
  #worker: Worker | undefined;
  #waiting = new Map<number, Waiting>();
  #lastId = 0;

  constructor(options: DatapathOptions) {
    this.#options = options;
  }

  probe = (): ReturnType<Datapath['probe']> => this.#ask('probe');
  open = (): ReturnType<Datapath['open']> => this.#ask('open');
  attach = (): ReturnType<Datapath['attach']> => this.#ask('attach');
  flip = (): ReturnType<Datapath['flip']> => this.#ask('flip');
  unstage = (): ReturnType<Datapath['unstage']> => this.#ask('unstage');
  stats = (): ReturnType<Datapath['stats']> => this.#ask('stats');
  learned = (): ReturnType<Datapath['learned']> => this.#ask('learned');
  grant: Datapath['grant'] = (grants) => this.#ask('grant', grants);
  revoke: Datapath['revoke'] = (grants) => this.#ask('revoke', grants);
  grantPort = async (): Promise<MessagePort> => {
    const { port1, port2 } = new MessageChannel();
    await this.#call('grantBy', [port2], [port2]);
    return port1;
  };
  prove: Datapath['prove'] = (sample) => this.#ask('prove', sample);
  stage: Datapath['stage'] = (program, generation) => this.#ask('stage', program, generation);
  hits: Datapath['hits'] = (query) => this.#ask('hits', query);
  flows: Datapath['flows'] = (query) => this.#ask('flows', query);

  /** A part at a time, so that nobody who asks the thread meanwhile waits for all of them. */
  async cutFlows(filter: FlowFilter): Promise<number> {
    let cut = 0;
    let after: Uint8Array | null = null;
    do {
      const query: FlowQuery = { filter, after, limit: CUT_AT_ONCE };
      const part: FlowsCut = await this.#ask('cutFlows', query);
      cut += part.cut;
      after = part.next;
    } while (after !== null);
    return cut;
  }

  watch(listener: (change: DatapathChange) => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  takeEvents(taker: (source: EventSource) => void): void {
    this.#taker = taker;
    // One that ended may have had the source that there is: there will be another. A thread that dies begins with one.
    if (this.#worker !== undefined) void this.#ask('tellEvents').catch(() => {});
  }

  async setEventsWanted(wanted: EventsWanted): Promise<void> {
    this.#eventsWanted = wanted;
    // A thread that dies of it leaves the next one to begin with it.
    if (this.#worker !== undefined) await this.#ask('setEventsWanted', wanted).catch(() => {});
  }

  async close(): Promise<void> {
    if (this.#worker === undefined) return;
    await this.#ask('close');
    await this.#end();
  }

  #ask<T>(method: Method, ...args: readonly unknown[]): Promise<T> {
    return this.#call(method, args);
  }

  #call<T>(method: Method, args: readonly unknown[], transferred: readonly Transferable[] = []): Promise<T> {
    this.#worker ??= this.#begin();
    const worker = this.#worker;
    const request: Request = { id: ++this.#lastId, method, args };
    return new Promise<T>((resolve, reject) => {
      this.#waiting.set(request.id, { resolve: (value) => resolve(value as T), reject });
      worker.postMessage(request, transferred);
    });
  }

  #begin(): Worker {
    // Built code needs none of the conditions and loaders that the sources are run with.
    const workerData: WorkerInput = { options: this.#options, eventsWanted: this.#eventsWanted };
    const worker = new Worker(builtWorker, { workerData, execArgv: [] });
    worker.on('message', (reply: Reply) => this.#receive(reply));
    worker.on('error', (error) => this.#died(worker, error.message));
    worker.on('exit', (code) => this.#died(worker, `the datapath's thread ended with ${code}`));
    return worker;
  }

  #receive(reply: Reply): void {
    if (reply.kind === 'change') {
      this.#tell(reply.change);
      return;
    }
    if (reply.kind === 'events') {
      this.#give(reply.source);
      return;
    }
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (reply.kind === 'result') waiting?.resolve(reply.value);
    else waiting?.reject(receive(reply.error));
  }

  #died(worker: Worker, reason: string): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    const waiting = this.#waiting;
    this.#waiting = new Map();
    for (const call of waiting.values()) call.reject(new DatapathFailure('DatapathFailure', reason, 'worker_died'));
    this.#tell({ type: 'worker_died', reason });
  }

  #tell(change: DatapathChange): void {
    for (const listener of this.#listeners) listener(change);
  }

  #give(source: EventSource): void {
    if (this.#taker === undefined) for (const port of portsOf(source)) port.close();
    else this.#taker(source);
  }

  async #end(): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
  }
}
