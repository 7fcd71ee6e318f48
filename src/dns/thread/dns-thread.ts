import type { MessagePort } from 'node:worker_threads';
import type { DnsSettings } from '#contracts/config/config-reload.js';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import type { SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import { addListener } from '#contracts/listeners.js';
import type { DnsOptions } from '#dns/dns-options.js';
import type { DnsChange, DnsProxy } from '#dns/dns-proxy.js';
import { socketsOf } from '#dns/listeners/dns-sockets.js';
import { UnforwardedNames } from '#dns/resolver/unforwarded-names.js';
import { Descriptors } from '#libc/descriptors.js';
import { ListeningSockets, MAX_WAIT_MS } from '#sockets/listening/listening-sockets.js';
import { WorkerClient } from '#threads/worker-client.js';
import type { DnsRequests, DnsWorkerData, FromDnsThread, ToDnsThread } from './dns-messages.js';

/**
 * Runs the DNS proxy in its own thread, so that other work of the process delays no lookup. If the thread
 * dies, pending requests to the thread fail and `watch` reports `worker_died`; the next `open` starts a new
 * thread. `members` returns all members (addresses that Kubernetes objects own) for a new thread; null while
 * they are not known. The caller must change its own record of the members before it calls `changeMembers` or
 * `replaceMembers`, because a new thread starts with this record.
 */
export function createDnsProxy(
  options: DnsOptions,
  sockets = new ListeningSockets(),
  members: () => MemberList | null = () => null,
): DnsProxy {
  return new DnsThread(options, sockets, members);
}

type Thread = WorkerClient<DnsRequests, ToDnsThread, FromDnsThread>;

class DnsThread implements DnsProxy {
  #thread: Thread | null = null;
  #lookups: Lookups | null = null;
  readonly #watchers = new Set<(change: DnsChange) => void>();
  readonly #observers = new Set<(seen: SeenLookups) => void>();
  #lookupsWanted = false;

  constructor(
    private options: DnsOptions,
    private readonly sockets: ListeningSockets,
    private readonly members: () => MemberList | null,
  ) {}

  async open({ awaitsGrants = false }: { readonly awaitsGrants?: boolean } = {}): Promise<void> {
    await this.#end();
    const { descriptors, isKept } = this.sockets.open('dns', socketsOf(this.options));
    const thread = this.#start();
    // Send the members before the first policy, so that no query is decided without them.
    const list = this.members();
    if (list !== null) thread.send({ kind: 'members', list });
    if (this.#lookups !== null) thread.send({ kind: 'use', lookups: this.#lookups });
    thread.send({ kind: 'lookups_wanted', wanted: this.#lookupsWanted });
    try {
      await thread.request('open', [descriptors, awaitsGrants && isKept ? MAX_WAIT_MS : 0]);
    } catch (failure) {
      await this.#end();
      throw failure;
    }
  }

  async change(settings: DnsSettings): Promise<void> {
    const options = { ...this.options, ...settings };
    const thread = this.#thread;
    if (thread !== null)
      await this.sockets.change('dns', socketsOf(options), (descriptors) =>
        thread.request('change', [settings, descriptors]),
      );
    this.options = options;
  }

  use(lookups: Lookups): void {
    this.#lookups = lookups;
    this.#thread?.send({ kind: 'use', lookups });
  }

  changeMembers(change: MembershipChange): Promise<void> {
    return this.#withThread((thread) => thread.request('changeMembers', [change]));
  }

  replaceMembers(list: MemberList): Promise<void> {
    return this.#withThread((thread) => thread.request('replaceMembers', [list]));
  }

  setGrantPort(port: MessagePort | null): void {
    if (this.#thread === null) {
      port?.close();
      return;
    }
    this.#thread.send({ kind: 'set_grant_port', port }, port === null ? [] : [port]);
  }

  stats = async (): ReturnType<DnsProxy['stats']> => this.#opened().request('stats', []);
  names = async (): ReturnType<DnsProxy['names']> => this.#opened().request('names', []);

  unforwardedReason: DnsProxy['unforwardedReason'] = (name) =>
    new UnforwardedNames(this.options.canaryNames).reasonFor(name);

  watch(listener: (change: DnsChange) => void): () => void {
    return addListener(this.#watchers, listener);
  }

  setLookupsWanted(wanted: boolean): void {
    this.#lookupsWanted = wanted;
    this.#thread?.send({ kind: 'lookups_wanted', wanted });
  }

  observe(listener: (seen: SeenLookups) => void): () => void {
    return addListener(this.#observers, listener);
  }

  async close(): Promise<void> {
    await this.#thread?.request('close', []).catch(() => {});
    await this.#end();
    this.sockets.close('dns');
  }

  #start(): Thread {
    const descriptors = new Descriptors();
    const workerData: DnsWorkerData = { options: this.options, descriptors: descriptors.shared };
    const given = {
      entry: 'node/dns.worker.cjs',
      name: "the DNS proxy's thread",
      workerData,
      // Almost all objects of a lookup are garbage after the lookup. A large young generation of V8's heap
      // makes garbage collections rare and short.
      resourceLimits: { maxYoungGenerationSizeMb: 48 },
    };
    this.#thread = new WorkerClient(given, {
      received: (message) => this.#handle(message),
      // Close the sockets only after the end of the thread. If another function closed them earlier, the
      // kernel could reuse a descriptor number that the thread still uses.
      exited: () => descriptors.closeAll(),
      failed: (reason) => {
        this.#thread = null;
        this.#notify({ type: 'worker_died', reason });
      },
    });
    return this.#thread;
  }

  /** Sends a request. If the thread ends before its reply, the next thread gets all members at its start. */
  async #withThread(ask: (thread: Thread) => Promise<void>): Promise<void> {
    const thread = this.#thread;
    if (thread === null) return;
    try {
      await ask(thread);
    } catch (failure) {
      if (!thread.isOver) throw failure;
    }
  }

  #opened(): Thread {
    if (this.#thread === null) throw new Error('the DNS proxy is not open: it was not started, or was closed');
    return this.#thread;
  }

  #handle(message: FromDnsThread): void {
    switch (message.kind) {
      case 'aliveness':
        this.#notify({ type: 'upstreams_changed', alive: message.alive, dead: message.dead });
        return;
      case 'seen':
        for (const observer of this.#observers) observer(message.seen);
    }
  }

  #notify(change: DnsChange): void {
    for (const watcher of this.#watchers) watcher(change);
  }

  async #end(): Promise<void> {
    const thread = this.#thread;
    this.#thread = null;
    await thread?.end('the DNS proxy was closed');
  }
}
