import type { Transferable } from 'node:worker_threads';
import type { SeenFlows } from '#contracts/analysis/seen-flows.js';
import type { EventSource } from '#contracts/datapath/event-source.js';
import type { SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { OwnerChanges } from '#contracts/kubernetes/address-owner.js';
import { addListener } from '#contracts/listeners.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import { portsOf } from '#dataplane/events/event-consumer.js';
import { PendingFindings } from '#observe/findings/store/pending.js';
import type { ObserverStats } from '#observe/metrics/stats.js';
import { WorkerClient } from '#threads/worker-client.js';
import type { FindingDelta } from './findings/finding.js';
import type { FindingPage, FindingQuery } from './findings/finding-filter.js';
import type { SeenFlowPage, SeenFlowQuery } from './flow-history/listed-flows.js';
import type { ObserverOptions } from './observer.worker.js';
import type { FromObserver, ObserverRequests, ToObserver, Wanted } from './observer-messages.js';
import { Readers, type Sink } from './wiretap/readers.js';
import type { WiretapFilter } from './wiretap/wiretap-filter.js';

/**
 * For how long before now a wiretap reader receives past messages, and the period within which equal messages
 * are combined into one.
 */
export type WiretapTimes = { readonly replayMs: number; readonly foldMs: number };

export type ObserverEvents = {
  wanted(wanted: Wanted): void;
  /**
   * Called for a problem that the operator must see in the log. `code` is null if the failure has no error
   * code.
   */
  trouble(code: string | null, message: string): void;
  /** Called when a reported problem has ended. `code` names the success, for example `findings_stored`. */
  relief(code: string, message: string): void;
  /** Returns the pods and nodes that own addresses. Called for each new observer thread. */
  owners(): OwnerChanges;
  /**
   * Called each time `begin` has started a new observer thread. The owner of the observer must then call
   * `readEvents` with a new event source, and `see` with the hostnames of all granted addresses. The new
   * thread has no event source and no hostnames yet.
   */
  begun(): void;
};

/**
 * The longest time in milliseconds that `close` waits until all findings are stored. A disk that does not
 * respond must not prevent the node from stopping.
 */
const CLOSE_MS = 5_000;

type Thread = WorkerClient<ObserverRequests, ToObserver, FromObserver>;

/**
 * Runs the observer in a separate thread, so that its work does not block the main thread. When the observer
 * thread dies, its pending requests fail and its wiretap readers are disconnected. The next call of `begin`
 * then starts a new thread.
 */
export class Observer {
  readonly #options: ObserverOptions;
  readonly #events: ObserverEvents;
  readonly #readers: Readers;
  #thread: Thread | null = null;
  readonly #watchers = new Set<(failure: string | null) => void>();
  /**
   * Findings that `record` received while no observer thread was running. `begin` sends them to the next
   * observer thread.
   */
  readonly #undelivered = new PendingFindings('observer');
  /**
   * Messages of `see` and `seeConnections` before the first call of `begin`, which sends them to the thread.
   */
  #early: ToObserver[] | null = [];
  #isRecording = true;
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

  /**
   * Starts the observer thread if none is running. Resolves when the thread has responded to a first request.
   */
  async begin(): Promise<void> {
    if (this.#isClosed) return;
    if (this.#thread === null) {
      this.#thread = this.#start();
      // Send the owners of addresses before any event, so that the messages about events contain their names.
      this.seeOwners(this.#events.owners());
      this.#send({ kind: 'recording', isRecording: this.#isRecording });
      for (const delta of this.#undelivered.drain()) this.#send({ kind: 'record', delta });
      for (const message of this.#early ?? []) this.#send(message);
      this.#early = null;
      this.#events.begun();
    }
    await this.#thread.request('stats', []);
  }

  /**
   * Calls the listener with the reason each time the observer thread dies before `close` is called. Returns a
   * function that removes the listener.
   */
  watch(listener: (failure: string | null) => void): () => void {
    return addListener(this.#watchers, listener);
  }

  /** Makes the observer thread read kernel events from `source`, instead of the previous source. */
  readEvents(source: EventSource): void {
    this.#send({ kind: 'read_events', source }, portsOf(source));
  }

  see(seen: SeenLookups): void {
    this.#tell({ kind: 'see', seen });
  }

  /** Passes changes of owners to the observer thread. A thread that is started later gets all owners. */
  seeOwners(changes: OwnerChanges): void {
    if (changes.changes.length > 0 || changes.sinceMs > 0) this.#send({ kind: 'see_owners', changes });
  }

  seeConnections(seen: SeenConnections): void {
    this.#tell({ kind: 'see_connections', seen });
  }

  record(delta: FindingDelta): void {
    if (this.#thread === null) this.#undelivered.add(delta);
    else this.#send({ kind: 'record', delta });
  }

  /** Tells whether the datapath sends events from now on (D34). A later thread is told too. */
  setRecording(isRecording: boolean): void {
    this.#isRecording = isRecording;
    this.#send({ kind: 'recording', isRecording });
  }

  /** Returns the recorded flows; null if none are recorded. Rejects if the thread does not run. */
  async seenFlows(): Promise<SeenFlows | null> {
    return this.#running().request('seenFlows', []);
  }

  /** Returns the recorded flows that match; null if none are recorded. Rejects if the thread does not run. */
  async listSeenFlows(query: SeenFlowQuery): Promise<SeenFlowPage | null> {
    return this.#running().request('listSeenFlows', [query]);
  }

  async findings(query: FindingQuery): Promise<FindingPage> {
    return this.#running().request('findings', [query]);
  }

  async stats(): Promise<ObserverStats> {
    const counted = await this.#running().request('stats', []);
    return { ...counted, readers: this.#readers.count, lostReader: this.#readers.lost };
  }

  /**
   * Adds a wiretap reader. The sink first receives the kept messages of the last `replayMs` milliseconds that
   * match the filter, and then new messages that match. Equal messages within `foldMs` milliseconds are one
   * message; 0 to fold none. If no observer thread runs, the sink is closed at once. The returned `close`
   * removes the reader.
   */
  read(filter: WiretapFilter, { replayMs, foldMs }: WiretapTimes, sink: Sink): { close(): void } {
    if (this.#thread === null) {
      sink.close('going_away');
      return { close: () => {} };
    }
    const reader = this.#readers.open(sink);
    this.#send({ kind: 'open', reader, filter, sinceMs: Date.now() - replayMs, foldMs });
    return { close: () => this.#readers.close(reader) };
  }

  endReaders(why: Parameters<Sink['close']>[0]): void {
    this.#readers.closeAll(why);
  }

  /**
   * Disconnects the wiretap readers, stores all findings and ends the observer thread. Waits at most
   * `CLOSE_MS` for the store. Resolves even if the store fails; `trouble` then receives the failure.
   */
  async close(): Promise<void> {
    this.#readers.stop();
    this.#isClosed = true;
    const thread = this.#thread;
    if (thread === null) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new Error(`the observer thread did not store its findings within ${CLOSE_MS / 1_000} s`)),
        CLOSE_MS,
      );
    });
    await Promise.race([thread.request('close', []), late]).catch((failure: Error) =>
      this.#events.trouble('observer_closed_late', failure.message),
    );
    clearTimeout(timer);
    this.#thread = null;
    await thread.end('the observer was closed');
  }

  #start(): Thread {
    const given = { entry: 'node/observer.worker.cjs', name: "the observer's thread", workerData: this.#options };
    return new WorkerClient(given, {
      received: (message) => this.#handle(message),
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

  #handle(message: FromObserver): void {
    switch (message.kind) {
      case 'frame':
        this.#readers.frame(message.frame);
        return;
      case 'refused':
        this.#readers.end(message.reader, 'too_many');
        return;
      case 'subscribed':
        this.#readers.subscribe(message.reader, message.channel);
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

  #tell(message: ToObserver): void {
    if (this.#early === null) this.#send(message);
    else this.#early.push(message);
  }

  #send(message: ToObserver, transferred: readonly Transferable[] = []): void {
    this.#thread?.send(message, transferred);
  }
}
