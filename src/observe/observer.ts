import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { type EventSource, portsOf } from '#dataplane/events/source.js';
import type { SeenConnections } from '#policy/seen-connection.js';
import type { SeenLookups } from '#policy/seen-lookup.js';
import type { FindingPage, FindingQuery } from './findings/filter.js';
import type { FindingDelta } from './findings/finding.js';
import { PendingFindings } from './findings/pending.js';
import type { Ask, Asks, FromObserver, ToObserver, Wanted } from './messages.js';
import type { ObserverStats } from './stats.js';
import type { WiretapFilter } from './wiretap/filter.js';
import { Readers, type Sink } from './wiretap/readers.js';
import type { ObserverOptions } from './worker.js';

export type ObserverEvents = {
  wanted(wanted: Wanted): void;
  /** Something that the operator must know; nothing stops because of it. */
  trouble(code: string | null, message: string): void;
  /** Some of that is over. */
  relief(code: string, message: string): void;
  /** Another one began in its place: it knows nothing yet, and hears nothing. */
  restarted(): void;
};

/** Worker threads run built code, also where the sources are loaded directly. */
const here = fileURLToPath(new URL('.', import.meta.url));
const builtWorker = here.includes('/dist/src/observe/')
  ? `${here}worker.js`
  : fileURLToPath(new URL('../../dist/src/observe/worker.js', import.meta.url));

const RESTART_MS = 1_000;
/** A disk that does not answer must not keep the node from ending. */
const CLOSE_MS = 5_000;

type Waiting = { readonly resolve: (answer: never) => void; readonly reject: (failure: Error) => void };

/**
 * The observation plane, in a thread of its own: however much there is to see, the API and the policies do not wait for it.
 * A thread that dies fails what it was asked and ends all readers, and another one begins.
 */
export class Observer {
  readonly #options: ObserverOptions;
  readonly #events: ObserverEvents;
  readonly #readers: Readers;
  #worker: Worker | null;
  #lastId = 0;
  #waiting = new Map<number, Waiting>();
  /** Told while no thread was there. */
  readonly #untold = new PendingFindings('observer');
  #isClosed = false;

  constructor(options: ObserverOptions, events: ObserverEvents) {
    this.#options = options;
    this.#events = events;
    this.#readers = new Readers({
      more: (reader) => this.#post({ kind: 'more', reader }),
      closed: (reader) => this.#post({ kind: 'closed', reader }),
      written: (bytes) => this.#post({ kind: 'written', bytes }),
    });
    this.#worker = this.#begin();
  }

  /** From now on events come from there. */
  hear(source: EventSource): void {
    this.#post({ kind: 'hear', source }, portsOf(source));
  }

  see(seen: SeenLookups): void {
    this.#post({ kind: 'see', seen });
  }

  seeConnections(seen: SeenConnections): void {
    this.#post({ kind: 'see_connections', seen });
  }

  record(delta: FindingDelta): void {
    if (this.#worker === null) this.#untold.add(delta);
    else this.#post({ kind: 'record', delta });
  }

  findings(query: FindingQuery): Promise<FindingPage> {
    return this.#ask('findings', query);
  }

  async stats(): Promise<ObserverStats> {
    const counted = await this.#ask('stats', null);
    return { ...counted, readers: this.#readers.count, lostReader: this.#readers.lost };
  }

  /** Sends what matches to the sink, first of what was seen in the last milliseconds. `close` ends that. */
  read(filter: WiretapFilter, replayMs: number, sink: Sink): { close(): void } {
    if (this.#worker === null) {
      sink.close('going_away');
      return { close: () => {} };
    }
    const reader = this.#readers.open(sink);
    this.#post({ kind: 'open', reader, filter, sinceMs: Date.now() - replayMs });
    return { close: () => this.#readers.close(reader) };
  }

  endReaders(why: Parameters<Sink['close']>[0]): void {
    this.#readers.closeAll(why);
  }

  /** What was seen is stored when it resolves. */
  async close(): Promise<void> {
    this.#readers.stop();
    this.#isClosed = true;
    const worker = this.#worker;
    if (worker === null) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('findings were not stored in time')), CLOSE_MS);
    });
    await Promise.race([this.#ask('close', null), late]).catch((failure: Error) =>
      this.#events.trouble('observer_closed_late', failure.message),
    );
    clearTimeout(timer);
    this.#worker = null;
    await worker.terminate();
  }

  #begin(): Worker {
    const worker = new Worker(builtWorker, { workerData: this.#options, execArgv: [] });
    worker.on('message', (message: FromObserver) => this.#take(message));
    let reason: string | null = null;
    worker.on('error', (failure) => {
      reason = failure.message;
    });
    worker.on('exit', (code) => this.#died(worker, reason ?? `the observer's thread ended with ${code}`));
    return worker;
  }

  #died(worker: Worker, reason: string): void {
    if (this.#worker !== worker) return;
    this.#worker = null;
    const waiting = this.#waiting;
    this.#waiting = new Map();
    for (const { reject } of waiting.values()) reject(new Error(reason));
    this.#readers.closeAll('going_away');
    if (this.#isClosed) return;
    this.#events.trouble('observer_died', reason);
    setTimeout(() => {
      if (this.#isClosed) return;
      this.#worker = this.#begin();
      for (const delta of this.#untold.take()) this.#post({ kind: 'record', delta });
      this.#events.restarted();
    }, RESTART_MS);
  }

  #take(message: FromObserver): void {
    switch (message.kind) {
      case 'frame':
        this.#readers.frame(message.frame);
        return;
      case 'refused':
        this.#readers.end(message.reader, 'too_many');
        return;
      case 'joined':
        this.#readers.joined(message.reader, message.channel);
        return;
      case 'wanted':
        this.#events.wanted(message.wanted);
        return;
      case 'trouble':
        this.#events.trouble(message.code, message.message);
        return;
      case 'relief':
        this.#events.relief(message.code, message.message);
        return;
      case 'answer':
      case 'failure': {
        const waiting = this.#waiting.get(message.id);
        this.#waiting.delete(message.id);
        if (message.kind === 'answer') waiting?.resolve(message.answer as never);
        else waiting?.reject(new Error(message.message));
      }
    }
  }

  #ask<A extends Ask>(what: A, asks: Asks[A]['asks']): Promise<Asks[A]['answer']> {
    const worker = this.#worker;
    if (worker === null) return Promise.reject(new Error('the observer is not running'));
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      worker.postMessage({ kind: 'ask', id, what, asks });
    });
  }

  #post(message: ToObserver, transferred: Parameters<Worker['postMessage']>[1] = []): void {
    this.#worker?.postMessage(message, transferred);
  }
}
