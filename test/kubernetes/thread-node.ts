import type { ServerResponse } from 'node:http';
import { compareAddresses, formatAddress } from '#addresses/ip-address.js';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import type {
  KubernetesListener,
  KubernetesSource,
  MembersMessage,
  ReflectorChange,
  StoredObject,
  WatchedIntegration,
} from '#contracts/kubernetes/kubernetes-source.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import type { KubernetesThreadOptions } from '#kubernetes/thread/kubernetes-messages.js';
import { createKubernetesSource } from '#kubernetes/thread/kubernetes-thread.js';
import { REFLECTOR_TIMES } from '#kubernetes/watch/reflector.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { podSelector } from './sample.js';
import { lineOf, ScriptedServer, sendList } from './scripted-server.js';

const TIMES = { ...REFLECTOR_TIMES, firstBackoffMs: 1, mostBackoffMs: 20 };
export const OPTIONS: KubernetesThreadOptions = { podNetworks: undefined, node: null, times: TIMES };
export const web = podSelector({ match_labels: { app: 'web' } });
export const db = podSelector({ match_labels: { app: 'db' } });

/** Functions that a test calls at its end, the last one first. */
export const ends: (() => Promise<void> | void)[] = [];

type ApiPod = { readonly name: string; readonly address: string; readonly app: string; readonly version: number };

const podJson = ({ name, address, app, version }: ApiPod) => ({
  metadata: { uid: name, name, namespace: 'shop', resourceVersion: String(version), labels: { app } },
  spec: { nodeName: 'n1' },
  status: {
    phase: 'Running',
    podIP: address,
    podIPs: [{ ip: address }],
    containerStatuses: [{ state: { running: { startedAt: '2026-01-01T00:00:00Z' } } }],
  },
});

/**
 * A cluster with pods. A server that is down breaks all connections. A watch begins with the events after its
 * resource version, as that of an API server does.
 */
export class Cluster {
  readonly server: ScriptedServer;
  readonly pods = new Map<string, ApiPod>();
  readonly #watches = new Set<ServerResponse>();
  readonly #events: { readonly version: number; readonly line: string }[] = [];
  version: number;
  isDown = false;

  private constructor(server: ScriptedServer, version: number) {
    this.server = server;
    this.version = version;
  }

  static async start(version = 100): Promise<Cluster> {
    const server = await ScriptedServer.start(({ path, query }, response) => {
      if (cluster.isDown) response.destroy();
      else if (query.has('watch')) {
        response.flushHeaders();
        if (path.endsWith('/pods')) cluster.#watch(response, Number(query.get('resourceVersion')));
      } else sendList(response, cluster.version, path.endsWith('/pods') ? [...cluster.pods.values()].map(podJson) : []);
    });
    ends.push(() => server.close());
    const cluster = new Cluster(server, version);
    return cluster;
  }

  get integration(): WatchedIntegration {
    return this.as('prod');
  }

  as(name: string, token = this.server.token): WatchedIntegration {
    return { name, access: { by: 'token', url: this.server.url, caPem: this.server.caPem, token } };
  }

  put(name: string, address: string, app: string): void {
    const pod = { name, address, app, version: ++this.version };
    this.pods.set(name, pod);
    this.#send('MODIFIED', pod);
  }

  remove(name: string): void {
    const pod = this.pods.get(name);
    if (pod === undefined) return;
    this.pods.delete(name);
    this.#send('DELETED', { ...pod, version: ++this.version });
  }

  #send(type: string, pod: ApiPod): void {
    const line = lineOf(type, podJson(pod));
    this.#events.push({ version: pod.version, line });
    for (const watch of this.#watches) watch.write(line);
  }

  #watch(response: ServerResponse, after: number): void {
    for (const { version, line } of this.#events) if (version > after) response.write(line);
    this.#watches.add(response);
  }

  stop(): void {
    this.isDown = true;
    for (const watch of this.#watches) watch.destroy();
    this.#watches.clear();
  }
}

/** The main thread of a node: applies the messages, and keeps the store. */
export class Node {
  readonly messages: MembersMessage[] = [];
  readonly reflectors: ReflectorChange[] = [];
  readonly failures: string[] = [];
  readonly record = new MemberRecord();
  readonly owners = new Map<Address, OwnerName>();
  readonly store: Map<string, string>;
  scope: SelectorResolution | undefined;
  readonly source: KubernetesSource;
  /** The listener handles a message only after this promise has resolved. */
  gate: Promise<void> = Promise.resolve();
  restored = 0;
  /** Called each time the thread has ended with an error, before the next thread starts. */
  onFailure: () => void = () => {};

  constructor(store = new Map<string, string>(), options = OPTIONS) {
    this.store = store;
    this.source = createKubernetesSource(options);
    ends.push(() => this.source.close());
  }

  async open(
    integrations: readonly WatchedIntegration[],
    selectors: readonly Selector[] | null = [web],
  ): Promise<this> {
    this.source.setIntegrations(integrations);
    if (selectors !== null) this.source.setSelectors(selectors);
    const listener: KubernetesListener = {
      members: (message) => this.#apply(message),
      reflector: (change) => this.reflectors.push(change),
      failed: (reason) => {
        this.failures.push(reason);
        this.onFailure();
      },
    };
    await this.source.open(async () => {
      this.restored++;
      return [...this.store].map(([key, value]): StoredObject => ({ key, value }));
    }, listener);
    return this;
  }

  /** The members by address, with the labels of their selectors. */
  get members(): Readonly<Record<string, string>> {
    const { addresses } = this.record.list();
    const shown = [...addresses].sort(compareAddresses).map((address) => {
      const { keys = [] } = this.record.setOf(address) ?? {};
      const names = [web, db]
        .filter(({ key }) => keys.includes(key))
        .map(({ source }) => source.pod_selector?.match_labels?.app);
      return [formatAddress(address), `${this.owners.get(address)?.name}: ${names.join()}`];
    });
    return Object.fromEntries(shown) as Record<string, string>;
  }

  phase(name: string): string | null | undefined {
    return this.reflectors.findLast((change) => change.name === name)?.phase;
  }

  async #apply(message: MembersMessage): Promise<void> {
    this.messages.push(message);
    await this.gate;
    if (message.replaces !== null) {
      this.owners.clear();
      this.record.replace(message.replaces);
    }
    for (const change of message.changes) this.record.change(change);
    for (const { address, owner } of message.owners) {
      if (owner === null) this.owners.delete(address);
      else this.owners.set(address, owner);
    }
    for (const { key, value } of message.stored) {
      if (value === null) this.store.delete(key);
      else this.store.set(key, value);
    }
    this.scope = message.scope ?? this.scope;
  }
}
