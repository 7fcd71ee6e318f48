import { setTimeout as pause } from 'node:timers/promises';
import { backoffMs } from '#contracts/backoff.js';
import type {
  KubernetesListener,
  KubernetesOptions,
  KubernetesSource,
  ReflectorChange,
  StoredObject,
  WatchedIntegration,
} from '#contracts/kubernetes/kubernetes-source.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import { WorkerClient } from '#threads/worker-client.js';
import { Acknowledgement } from './acknowledgement.js';
import type {
  FromKubernetesThread,
  KubernetesRequests,
  KubernetesThreadOptions,
  KubernetesWorkerData,
  ToKubernetesThread,
} from './kubernetes-messages.js';

/** The time in milliseconds before the thread is started again after its first error, see `backoffMs`. */
const FIRST_BACKOFF_MS = 200;
const MAX_BACKOFF_MS = 30_000;
/** If a thread has run for this many milliseconds, the wait before its next restart is short again. */
const LIVED_MS = 60_000;
/**
 * The number of stored objects in one message to the thread. It is limited so that the main thread can serve
 * requests between the messages.
 */
const STORED_IN_MESSAGE = 1_000;
/**
 * The young generation of the V8 heap of the thread in MiB. The objects of a page are soon garbage, and by
 * default, V8 would let them grow to 48 MiB before it frees them.
 */
const YOUNG_HEAP_MIB = 4;

/**
 * Watches Kubernetes in its own thread, so that no list of the API server blocks the process. After an error,
 * the thread is started again with the objects of the store.
 */
export function createKubernetesSource(options: KubernetesOptions | KubernetesThreadOptions): KubernetesSource {
  return new KubernetesThread(options);
}

type Thread = WorkerClient<KubernetesRequests, ToKubernetesThread, FromKubernetesThread>;
type Opened = { readonly restored: () => Promise<readonly StoredObject[]>; readonly listener: KubernetesListener };
type Running = {
  readonly thread: Thread;
  readonly listener: KubernetesListener;
  readonly acknowledgement: Acknowledgement;
};

class KubernetesThread implements KubernetesSource {
  readonly #options: KubernetesOptions | KubernetesThreadOptions;
  readonly #closed = new AbortController();
  #opened: Opened | undefined;
  #thread: Thread | undefined;
  /** The requests that wait for the start of the thread. */
  #starts: { readonly resolve: (thread: Thread) => void; readonly reject: (failure: Error) => void }[] = [];
  /** Resolves when the listener has applied the last message. Never rejects. */
  #applying: Promise<void> = Promise.resolve();
  #startedAt = 0;
  #failures = 0;
  #integrations: readonly WatchedIntegration[] | undefined;
  #selectors: readonly Selector[] | undefined;
  /** The selectors of a proposed policy, from the last call of `membership`; undefined after `release`. */
  #proposed: readonly Selector[] | undefined;
  /** For each reflector, its last change with a phase, such as `listing` or `watching`. */
  readonly #reflectors = new Map<string, ReflectorChange>();

  constructor(options: KubernetesOptions | KubernetesThreadOptions) {
    this.#options = options;
  }

  async open(restored: Opened['restored'], listener: KubernetesListener): Promise<void> {
    const opened = { restored, listener };
    this.#opened = opened;
    await this.#start(opened);
  }

  setIntegrations(integrations: readonly WatchedIntegration[]): void {
    this.#integrations = integrations;
    this.#thread?.send({ kind: 'setIntegrations', integrations });
  }

  setSelectors(selectors: readonly Selector[]): void {
    this.#selectors = selectors;
    this.#thread?.send({ kind: 'setSelectors', selectors });
  }

  async membership(selectors: readonly Selector[], withinMs: number): ReturnType<KubernetesSource['membership']> {
    this.#proposed = selectors;
    const until = performance.now() + withinMs;
    for (;;) {
      const thread = await this.#startedThread();
      try {
        return await thread.request('membership', [selectors, Math.max(0, until - performance.now())]);
      } catch (failure) {
        // The thread ended with an error: repeat the request with the next thread, until the deadline.
        if (this.#closed.signal.aborted || performance.now() > until) throw failure;
      }
    }
  }

  release(): void {
    this.#proposed = undefined;
    this.#thread?.send({ kind: 'release' });
  }

  async facts(integration: string): ReturnType<KubernetesSource['facts']> {
    return this.#runningThread().request('facts', [integration]);
  }

  async objectCounts(integration: string): ReturnType<KubernetesSource['objectCounts']> {
    return this.#runningThread().request('objectCounts', [integration]);
  }

  async membersOf(
    keys: readonly string[],
    after: Address | null,
    limit: number,
  ): ReturnType<KubernetesSource['membersOf']> {
    return this.#runningThread().request('membersOf', [keys, after, limit]);
  }

  async close(): Promise<void> {
    this.#closed.abort();
    this.#opened = undefined;
    const thread = this.#thread;
    this.#thread = undefined;
    for (const { reject } of this.#starts.splice(0)) reject(new Error(CLOSED));
    await thread?.end(CLOSED);
    await this.#applying;
  }

  /** Returns the thread. Throws an error if it does not run. */
  #runningThread(): Thread {
    if (this.#thread === undefined) throw new Error('the Kubernetes thread does not run');
    return this.#thread;
  }

  /** Returns the thread, after its start if it is being started. */
  #startedThread(): Promise<Thread> {
    if (this.#thread !== undefined) return Promise.resolve(this.#thread);
    if (this.#opened === undefined)
      return Promise.reject(new Error('the Kubernetes thread was not started, or was closed'));
    return new Promise((resolve, reject) => this.#starts.push({ resolve, reject }));
  }

  async #start({ restored, listener }: Opened): Promise<void> {
    this.#startedAt = performance.now();
    // The listener must not apply messages of two threads at the same time.
    await this.#applying;
    const stored = await restored();
    if (this.#closed.signal.aborted) return;
    for (const change of this.#reflectors.values()) listener.reflector({ ...change, phase: null, at: now() });
    this.#reflectors.clear();
    const acknowledgement = new Acknowledgement();
    const worker = {
      entry: 'node/kubernetes.worker.cjs',
      name: 'the Kubernetes thread',
      workerData: { options: this.#options, acknowledgement: acknowledgement.shared } satisfies KubernetesWorkerData,
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_HEAP_MIB },
    };
    const thread: Thread = new WorkerClient(worker, {
      received: (message) => this.#handle({ thread, listener, acknowledgement }, message),
      failed: (reason) => this.#restart(listener, reason),
    });
    for (let at = 0; at < stored.length; at += STORED_IN_MESSAGE) {
      thread.send({ kind: 'stored', objects: stored.slice(at, at + STORED_IN_MESSAGE) });
      await new Promise(setImmediate);
    }
    if (this.#closed.signal.aborted) await thread.end(CLOSED);
    if (thread.isOver) return;
    if (this.#integrations !== undefined) thread.send({ kind: 'setIntegrations', integrations: this.#integrations });
    if (this.#selectors !== undefined) thread.send({ kind: 'setSelectors', selectors: this.#selectors });
    if (this.#proposed !== undefined) thread.send({ kind: 'setProposedSelectors', selectors: this.#proposed });
    thread.send({ kind: 'open' });
    this.#thread = thread;
    for (const { resolve } of this.#starts.splice(0)) resolve(thread);
  }

  #handle({ thread, listener, acknowledgement }: Running, message: FromKubernetesThread): void {
    if (this.#closed.signal.aborted || thread.isOver) return;
    if (message.kind === 'reflector') {
      const { change } = message;
      const key = JSON.stringify([change.integration, change.name]);
      if (change.phase === null) this.#reflectors.delete(key);
      else this.#reflectors.set(key, change);
      listener.reflector(change);
      return;
    }
    this.#applying = listener.members(message.message).then(
      () => {
        if (acknowledgement.give()) thread.send({ kind: 'members_applied' });
      },
      (failure: unknown) => {
        // Restart the thread, so that it sends all members (addresses of pods and nodes) again: the listener
        // has not applied these members.
        const reason = `the members were not taken: ${failure instanceof Error ? failure.message : String(failure)}`;
        if (!thread.isOver) void thread.end(reason).then(() => this.#restart(listener, reason));
      },
    );
  }

  #restart(listener: KubernetesListener, reason: string): void {
    this.#thread = undefined;
    if (this.#closed.signal.aborted) return;
    this.#failures = performance.now() - this.#startedAt >= LIVED_MS ? 1 : this.#failures + 1;
    for (const change of this.#reflectors.values())
      listener.reflector({ ...change, phase: 'backing_off', reason, at: now() });
    listener.failed(reason);
    void this.#startAgain();
  }

  async #startAgain(): Promise<void> {
    const waitMs = backoffMs(this.#failures - 1, FIRST_BACKOFF_MS, MAX_BACKOFF_MS);
    await pause(waitMs, undefined, { signal: this.#closed.signal }).catch(() => {});
    const opened = this.#opened;
    if (opened === undefined) return;
    try {
      await this.#start(opened);
    } catch (failure) {
      // The objects of the store could not be read.
      this.#restart(opened.listener, failure instanceof Error ? failure.message : String(failure));
    }
  }
}

const CLOSED = 'the Kubernetes thread was closed';
const now = (): string => new Date().toISOString();
