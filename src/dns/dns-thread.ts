import { fileURLToPath } from 'node:url';
import { type MessagePort, Worker } from 'node:worker_threads';
import type { Lookups } from '#policy/lookups.js';
import type { SeenLookups } from '#policy/seen-lookup.js';
import { Descriptors } from '#sockets/descriptors.js';
import type { DnsChange, DnsProxy } from './dns-proxy.js';
import type { Asks, FromThread, Given, ToThread } from './messages.js';
import type { DnsOptions } from './options.js';

/**
 * The DNS proxy in a thread of its own, so that nothing that the node does makes a lookup wait. A thread that dies
 * fails what it was asked, tells `watch`, and another one begins with the next `open`.
 */
export function createDnsProxy(options: DnsOptions): DnsProxy {
  return new DnsThread(options);
}

/** Worker threads run built code, also where the sources are loaded directly. */
const here = fileURLToPath(new URL('.', import.meta.url));
const builtWorker = here.includes('/dist/src/dns/')
  ? `${here}worker.js`
  : fileURLToPath(new URL('../../dist/src/dns/worker.js', import.meta.url));

type Waiting = { readonly resolve: (value: unknown) => void; readonly reject: (failure: Error) => void };

class DnsThread implements DnsProxy {
  #worker: Worker | null = null;
  #lookups: Lookups | null = null;
  #lastId = 0;
  #waiting = new Map<number, Waiting>();
  readonly #watchers = new Set<(change: DnsChange) => void>();
  readonly #observers = new Set<(seen: SeenLookups) => void>();
  #lookupsWanted = false;

  constructor(private readonly options: DnsOptions) {}

  async open(): Promise<void> {
    await this.#end();
    const worker = this.#begin();
    if (this.#lookups !== null) this.#post(worker, { kind: 'use', lookups: this.#lookups });
    this.#post(worker, { kind: 'lookups_wanted', wanted: this.#lookupsWanted });
    try {
      await this.#ask('open');
    } catch (failure) {
      await this.#end();
      throw failure;
    }
  }

  use(lookups: Lookups): void {
    this.#lookups = lookups;
    if (this.#worker !== null) this.#post(this.#worker, { kind: 'use', lookups });
  }

  grantBy(port: MessagePort | null): void {
    if (this.#worker === null) port?.close();
    else this.#post(this.#worker, { kind: 'grant_by', port }, port === null ? [] : [port]);
  }

  stats = (): ReturnType<DnsProxy['stats']> => this.#ask('stats');
  names = (): ReturnType<DnsProxy['names']> => this.#ask('names');

  watch(listener: (change: DnsChange) => void): () => void {
    this.#watchers.add(listener);
    return () => {
      this.#watchers.delete(listener);
    };
  }

  setLookupsWanted(wanted: boolean): void {
    this.#lookupsWanted = wanted;
    if (this.#worker !== null) this.#post(this.#worker, { kind: 'lookups_wanted', wanted });
  }

  observe(listener: (seen: SeenLookups) => void): () => void {
    this.#observers.add(listener);
    return () => {
      this.#observers.delete(listener);
    };
  }

  async close(): Promise<void> {
    if (this.#worker !== null) await this.#ask('close').catch(() => {});
    await this.#end();
  }

  #begin(): Worker {
    const descriptors = new Descriptors();
    const workerData: Given = { options: this.options, descriptors: descriptors.shared };
    const worker = new Worker(builtWorker, {
      workerData,
      execArgv: [],
      // Of what is young next to nothing is live after a lookup: room for it makes collections rare, and they stay short.
      resourceLimits: { maxYoungGenerationSizeMb: 48 },
    });
    worker.on('message', (message: FromThread) => this.#hear(message));
    let reason: string | null = null;
    worker.on('error', (failure) => {
      reason = failure.message;
    });
    // It is dead only now, and its sockets are nobody's.
    worker.on('exit', (code) => {
      descriptors.closeAll();
      this.#died(worker, reason ?? `the DNS proxy's thread ended with ${code}`);
    });
    this.#worker = worker;
    return worker;
  }

  #ask<K extends keyof Asks>(what: K): Promise<Asks[K]> {
    const worker = this.#worker;
    if (worker === null) return Promise.reject(new Error('the DNS proxy is not open'));
    const id = ++this.#lastId;
    return new Promise<Asks[K]>((resolve, reject) => {
      this.#waiting.set(id, { resolve: (value) => resolve(value as Asks[K]), reject });
      this.#post(worker, { kind: 'ask', id, what });
    });
  }

  #post(worker: Worker, message: ToThread, transferred: readonly MessagePort[] = []): void {
    worker.postMessage(message, transferred);
  }

  #hear(message: FromThread): void {
    switch (message.kind) {
      case 'aliveness':
        this.#tell({ type: 'upstreams_changed', alive: message.alive, dead: message.dead });
        return;
      case 'seen':
        for (const observer of this.#observers) observer(message.seen);
        return;
      case 'answer':
      case 'failure': {
        const waiting = this.#waiting.get(message.id);
        this.#waiting.delete(message.id);
        if (message.kind === 'answer') waiting?.resolve(message.value);
        else waiting?.reject(new Error(message.message));
      }
    }
  }

  #died(worker: Worker, reason: string): void {
    if (this.#worker !== worker) return;
    this.#worker = null;
    this.#failAll(reason);
    this.#tell({ type: 'worker_died', reason });
  }

  #tell(change: DnsChange): void {
    for (const watcher of this.#watchers) watcher(change);
  }

  #failAll(reason: string): void {
    const waiting = this.#waiting;
    this.#waiting = new Map();
    for (const { reject } of waiting.values()) reject(new Error(reason));
  }

  async #end(): Promise<void> {
    const worker = this.#worker;
    this.#worker = null;
    await worker?.terminate();
    this.#failAll('the DNS proxy was closed');
  }
}
