import { MessageChannel, type MessagePort } from 'node:worker_threads';
import {
  type Adoption,
  type Datapath,
  type DatapathChange,
  type EventsWanted,
  type FlowFilter,
  type FlowQuery,
  type MachineCheck,
  NO_EVENTS,
} from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { EventSource } from '#contracts/datapath/event-source.js';
import { addListener } from '#contracts/listeners.js';
import { portsOf } from '#dataplane/events/event-consumer.js';
import { Descriptors } from '#libc/descriptors.js';
import { WorkerClient } from '#threads/worker-client.js';
import {
  DatapathFailure,
  type DatapathRequests,
  deserializeError,
  type FromDatapath,
  type SentError,
  type WorkerInput,
} from './datapath-messages.js';

export { type DatapathOptions, DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';

/** A datapath that can start before its owner needs it. */
export type BegunDatapath = Datapath & {
  /**
   * Starts the thread, which probes the machine, and opens the datapath if no requirement is missing. The
   * next calls of `probe` and `open` return these results.
   */
  begin(): void;
  /**
   * Resolves, while `begin` still opens the datapath, with the policy that the kernel enforces. Null if there
   * is none, or if the datapath could not be opened.
   */
  readonly found: Promise<Adoption['inForce']>;
  /**
   * Returns the reasons why this machine cannot enforce the options. Loads the BPF programs, and frees them
   * again. Attaches and pins nothing, so a running node is not disturbed.
   */
  check(): Promise<MachineCheck>;
};

/**
 * Runs the datapath in a separate thread, because its system calls block and would stop the event loop. The
 * first request starts the thread, and `close` ends it. The pinned BPF programs stay in force without the
 * thread. If the thread dies, every pending request fails, and the listeners of `watch` receive the change
 * `worker_died`. The next request starts a new thread, and must be `open`.
 */
export function openDatapath(options: DatapathOptions): BegunDatapath {
  return new DatapathThread(options);
}

const CUT_AT_ONCE = 2_048;

type Thread = WorkerClient<DatapathRequests, never, FromDatapath>;

class DatapathThread implements BegunDatapath {
  #options: DatapathOptions;
  readonly #listeners = new Set<(change: DatapathChange) => void>();
  #eventSourceListener: ((source: EventSource) => void) | undefined;
  #eventsWanted: EventsWanted = NO_EVENTS;
  #thread: Thread | undefined;
  readonly found: Promise<Adoption['inForce']>;
  #resolveFound: (inForce: Adoption['inForce']) => void = () => {};
  /** The results of `begin` that no call of `open` has returned yet. */
  #begun: { readonly probed: ReturnType<Datapath['probe']>; readonly opened: ReturnType<Datapath['open']> } | undefined;
  /** The event source of the thread, until a consumer calls `onEventSource`. */
  #unclaimedSource: EventSource | undefined;

  constructor(options: DatapathOptions) {
    this.#options = options;
    this.found = new Promise((resolve) => {
      this.#resolveFound = resolve;
    });
  }

  begin(): void {
    const thread = this.#running();
    const begun = { probed: thread.request('probe', []), opened: thread.request('openIfSupported', []) };
    // `probe` and `open` return these failures. Without this line, an earlier failure would be an unhandled
    // rejection, which ends the process.
    for (const done of Object.values(begun)) done.catch(() => this.#resolveFound(null));
    this.#begun = begun;
  }

  probe = (): ReturnType<Datapath['probe']> => this.#begun?.probed ?? this.#running().request('probe', []);

  open(): ReturnType<Datapath['open']> {
    const begun = this.#begun;
    this.#begun = undefined;
    return begun?.opened ?? this.#running().request('open', []);
  }

  check = (): Promise<MachineCheck> => this.#running().request('check', []);
  attach = (): ReturnType<Datapath['attach']> => this.#running().request('attach', []);
  review = (): ReturnType<Datapath['review']> => this.#running().request('review', []);
  flip: Datapath['flip'] = (standing) => this.#running().request('flip', [standing]);
  // Do not start a thread for a confirmation: while no datapath is open, the kernel keeps no base (last
  // confirmed policy) for this process.
  confirm: Datapath['confirm'] = async (generation) => this.#thread?.request('confirm', [generation]);
  unstage = (): ReturnType<Datapath['unstage']> => this.#running().request('unstage', []);
  stats = (): ReturnType<Datapath['stats']> => this.#running().request('stats', []);
  learned = (): ReturnType<Datapath['learned']> => this.#running().request('learned', []);
  arrival: Datapath['arrival'] = (source) => this.#running().request('arrival', [source]);
  destinationTranslation: Datapath['destinationTranslation'] = (packet) =>
    this.#running().request('destinationTranslation', [packet]);
  grant: Datapath['grant'] = (grants) => this.#running().request('grant', [grants]);
  // A change of members (addresses of Kubernetes objects) can arrive at any time, and must not start a
  // thread.
  changeMembers: Datapath['changeMembers'] = async (change) => this.#started().request('changeMembers', [change]);
  replaceMembers: Datapath['replaceMembers'] = async (list) => this.#started().request('replaceMembers', [list]);
  revoke: Datapath['revoke'] = (grants) => this.#running().request('revoke', [grants]);
  spliceOffload: Datapath['spliceOffload'] = () => this.#running().request('spliceOffload', []);
  prove: Datapath['prove'] = (samples) => this.#running().request('prove', [samples]);
  stage: Datapath['stage'] = (...given) => this.#running().request('stage', given);
  hits: Datapath['hits'] = (query) => this.#running().request('hits', [query]);
  groupTraffic: Datapath['groupTraffic'] = () => this.#running().request('groupTraffic', []);
  flows: Datapath['flows'] = (query) => this.#running().request('flows', [query]);

  async police(...[interfaces, renamed]: Parameters<Datapath['police']>): ReturnType<Datapath['police']> {
    const attachments = (await this.#thread?.request('police', [interfaces, renamed])) ?? null;
    this.#options = { ...this.#options, interfaces };
    return attachments;
  }

  async grantPort(): Promise<MessagePort> {
    const { port1, port2 } = new MessageChannel();
    await this.#running().request('grantBy', [port2], [port2]);
    return port1;
  }

  /**
   * Ends the flows that match the filter, in several requests of at most `CUT_AT_ONCE` flows each. Between
   * two of these requests, the thread can serve other requests.
   */
  async cutFlows(filter: FlowFilter): Promise<number> {
    let cut = 0;
    let after: Uint8Array | null = null;
    do {
      const query: FlowQuery = { filter, after, limit: CUT_AT_ONCE };
      const part = await this.#running().request('cutFlows', [query]);
      cut += part.cut;
      after = part.next;
    } while (after !== null);
    return cut;
  }

  watch(listener: (change: DatapathChange) => void): () => void {
    return addListener(this.#listeners, listener);
  }

  onEventSource(listener: (source: EventSource) => void): void {
    this.#eventSourceListener = listener;
    const unclaimed = this.#unclaimedSource;
    this.#unclaimedSource = undefined;
    if (unclaimed !== undefined) {
      listener(unclaimed);
      return;
    }
    // Request a new event source: the previous consumer of events may have ended, and then the ports of its
    // source are closed. If the thread dies during the request, the next thread sends a new source without a
    // request.
    void this.#thread?.request('renewEventSource', []).catch(() => {});
  }

  async setEventsWanted(wanted: EventsWanted): Promise<void> {
    this.#eventsWanted = wanted;
    // Ignore an error: if the thread dies during the call, the next thread starts with this setting.
    await this.#thread?.request('setEventsWanted', [wanted]).catch(() => {});
  }

  async close(): Promise<void> {
    const thread = this.#thread;
    if (thread === undefined) return;
    await thread.request('close', []);
    this.#thread = undefined;
    this.#begun = undefined;
    this.#drop();
    await thread.end('the datapath was closed');
  }

  #started(): Thread {
    if (this.#thread === undefined) throw new Error('the datapath is not open: it was not started, or was closed');
    return this.#thread;
  }

  #running(): Thread {
    this.#thread ??= this.#begin();
    return this.#thread;
  }

  #begin(): Thread {
    const descriptors = new Descriptors();
    const workerData: WorkerInput = {
      options: this.#options,
      eventsWanted: this.#eventsWanted,
      descriptors: descriptors.shared,
    };
    const given = {
      entry: 'node/datapath.worker.cjs',
      name: "the datapath's thread",
      workerData,
      // A small young generation suffices, because program images are outside of V8's heap. With the default
      // of 48 MiB, V8 keeps 16 MiB of memory after a policy write.
      resourceLimits: { maxYoungGenerationSizeMb: 12 },
    };
    return new WorkerClient(given, {
      received: (message) => {
        if (message.kind === 'change') this.#tell(message.change);
        else if (message.kind === 'found') this.#resolveFound(message.inForce);
        else this.#give(message.source);
      },
      failed: (reason) => {
        this.#thread = undefined;
        this.#begun = undefined;
        this.#drop();
        this.#tell({ type: 'worker_died', reason });
      },
      // Close the lock descriptors of a thread that died. Otherwise the next thread could not take the locks.
      exited: () => descriptors.closeAll(),
      requestError: (sent) => deserializeError(sent as SentError),
      terminationError: (reason) => new DatapathFailure('DatapathFailure', reason, 'worker_died'),
    });
  }

  #tell(change: DatapathChange): void {
    for (const listener of this.#listeners) listener(change);
  }

  #give(source: EventSource): void {
    if (this.#eventSourceListener !== undefined) {
      this.#eventSourceListener(source);
      return;
    }
    this.#drop();
    this.#unclaimedSource = source;
  }

  #drop(): void {
    if (this.#unclaimedSource !== undefined) for (const port of portsOf(this.#unclaimedSource)) port.close();
    this.#unclaimedSource = undefined;
  }
}
