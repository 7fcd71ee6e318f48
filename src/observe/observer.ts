import type { Transferable } from 'node:worker_threads';
import type { EventSource } from '#contracts/event-source.js';
import type { SeenConnections } from '#contracts/seen-connection.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';
import { portsOf } from '#dataplane/events/event-consumer.js';
import { WorkerClient } from '#threads/worker-client.js';
import type { FindingDelta } from './findings/finding.js';
import type { FindingPage, FindingQuery } from './findings/finding-filter.js';
import { PendingFindings } from './findings/pending.js';
import type { ObserverOptions } from './observer.worker.js';
import type { FromObserver, ObserverRequests, ToObserver, Wanted } from './observer-messages.js';
import type { ObserverStats } from './stats.js';
import { Readers, type Sink } from './wiretap/readers.js';
import type { WiretapFilter } from './wiretap/wiretap-filter.js';

export type ObserverEvents = {
  wanted(wanted: Wanted): void;
  /** Called for a problem that the operator must see. The observer continues to work. */
  trouble(code: string | null, message: string): void;
  /** Called when the problem with this code has ended. */
  relief(code: string, message: string): void;
  /**
   * Called when an observer thread has started. The new thread has no event source and no hostnames of
   * addresses yet; the caller must send them.
   */
  begun(): void;
};

/**
 * `close` waits at most this long for findings to be stored. A disk that does not respond must not keep the
 * node from stopping.
 */
const CLOSE_MS = 5_000;

type Thread = WorkerClient<ObserverRequests, ToObserver, FromObserver>;

/**
 * Runs the observer in its own thread, so that the API and policy writes never wait for it. When the thread
 * dies, its pending requests fail and its wiretap readers are disconnected. `begin` then starts a new thread.
 */
export class Observer {
  readonly #options: ObserverOptions;
  readonly #events: ObserverEvents;
  readonly #readers: Readers;
  #thread: Thread | null = null;
  readonly #watchers = new Set<(failure: string | null) => void>();
  /** Findings that arrived while no observer thread was running. `begin` sends them to the next thread. */
  readonly #undelivered = new PendingFindings('observer');
  #isClosed = false;

  constructor(options: ObserverOptions, events: ObserverEvents) {
    this.#options = options;
    this.#events = events;
    this.#readers = new Readers({
      more: (reader) => this.#send({ kind: 'more', reader }),
      closed: (reader) => this.#send({ kind: 'closed', reader }),
      written: (bytes) => this.#send({ kind: 'written', bytes }),
    });
  }

  /** Starts the observer thread if none is running. Resolves when the thread responds to a request. */
  async begin(): Promise<void> {
    if (this.#isClosed) return;
    if (this.#thread === null) {
      this.#thread = this.#start();
      for (const delta of this.#undelivered.take()) this.#send({ kind: 'record', delta });
      this.#events.begun();
    }
    await this.#thread.request('stats', []);
  }

  /**
   * Calls the listener with the reason each time the observer thread dies. Returns a function that removes
   * the listener.
   */
  watch(listener: (failure: string | null) => void): () => void {
    this.#watchers.add(listener);
    return () => {
      this.#watchers.delete(listener);
    };
  }

  /** Makes the observer thread read kernel events from this source from now on. */
  readEvents(source: EventSource): void {
    this.#send({ kind: 'read_events', source }, portsOf(source));
  }

  see(seen: SeenLookups): void {
    this.#send({ kind: 'see', seen });
  }

  seeConnections(seen: SeenConnections): void {
    this.#send({ kind: 'see_connections', seen });
  }

  record(delta: FindingDelta): void {
    if (this.#thread === null) this.#undelivered.add(delta);
    else this.#send({ kind: 'record', delta });
  }

  async findings(query: FindingQuery): Promise<FindingPage> {
    return this.#running().request('findings', [query]);
  }

  async stats(): Promise<ObserverStats> {
    const counted = await this.#running().request('stats', []);
    return { ...counted, readers: this.#readers.count, lostReader: this.#readers.lost };
  }

  /**
   * Sends the messages that match the filter to the sink, beginning with messages of the last `replayMs`
   * milliseconds. The returned `close` ends the stream.
   */
  read(filter: WiretapFilter, replayMs: number, sink: Sink): { close(): void } {
    if (this.#thread === null) {
      sink.close('going_away');
      return { close: () => {} };
    }
    const reader = this.#readers.open(sink);
    this.#send({ kind: 'open', reader, filter, sinceMs: Date.now() - replayMs });
    return { close: () => this.#readers.close(reader) };
  }

  endReaders(why: Parameters<Sink['close']>[0]): void {
    this.#readers.closeAll(why);
  }

  /**
   * Disconnects the readers, stores all findings and ends the thread. Resolves when the findings are stored,
   * or after `CLOSE_MS`.
   */
  async close(): Promise<void> {
    this.#readers.stop();
    this.#isClosed = true;
    const thread = this.#thread;
    if (thread === null) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('findings were not stored in time')), CLOSE_MS);
    });
    await Promise.race([thread.request('close', []), late]).catch((failure: Error) =>
      this.#events.trouble('observer_closed_late', failure.message),
    );
    clearTimeout(timer);
    this.#thread = null;
    await thread.end('the observer was closed');
  }

  #start(): Thread {
    const given = { entry: 'src/observe/observer.worker.js', name: "the observer's thread", workerData: this.#options };
    return new WorkerClient(given, {
      received: (message) => this.#take(message),
      failed: (reason) => this.#failed(reason),
    });
  }

  #running(): Thread {
    if (this.#thread === null) throw new Error('the observer is not running');
    return this.#thread;
  }

  #failed(reason: string): void {
    this.#thread = null;
    this.#readers.closeAll('going_away');
    if (this.#isClosed) return;
    this.#events.trouble('observer_died', reason);
    for (const watcher of this.#watchers) watcher(reason);
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
    }
  }

  #send(message: ToObserver, transferred: readonly Transferable[] = []): void {
    this.#thread?.send(message, transferred);
  }
}
