import { mkdirSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type {
  KubernetesListener,
  KubernetesSource,
  MembersMessage,
  OwnerName,
  ReflectorChange,
  StoredObject,
  WatchedIntegration,
} from '#contracts/kubernetes-source.js';
import type { SelectorScope } from '#contracts/membership.js';
import type { Selector } from '#contracts/policy-model.js';
import { REFLECTOR_TIMES } from '#kubernetes/reflector.js';
import type { KubernetesThreadOptions } from '#kubernetes/thread/kubernetes-messages.js';
import { createKubernetesSource } from '#kubernetes/thread/kubernetes-thread.js';
import { formatAddress } from '#policy/model/ipv4.js';
import { MemberRecord } from '#policy/model/member-record.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { ip, podSelector } from './sample.js';
import { lineOf, ScriptedServer, sendList, sendStatus } from './scripted-server.js';

const TIMES = { ...REFLECTOR_TIMES, firstBackoffMs: 1, mostBackoffMs: 20 };
const OPTIONS: KubernetesThreadOptions = { podNetworks: undefined, node: null, times: TIMES };
const web = podSelector({ match_labels: { app: 'web' } });
const db = podSelector({ match_labels: { app: 'db' } });

const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

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

/** A cluster with pods. A server that is down breaks all connections. */
class Cluster {
  readonly server: ScriptedServer;
  readonly pods = new Map<string, ApiPod>();
  readonly #watches = new Set<ServerResponse>();
  version: number;
  isDown = false;

  private constructor(server: ScriptedServer, version: number) {
    this.server = server;
    this.version = version;
  }

  static async start(version = 100): Promise<Cluster> {
    let cluster: Cluster | undefined;
    const server = await ScriptedServer.start(({ path, query }, response) => {
      if (cluster === undefined || cluster.isDown) response.destroy();
      else if (query.has('watch')) {
        response.flushHeaders();
        if (path.endsWith('/pods')) cluster.#watches.add(response);
      } else sendList(response, cluster.version, path.endsWith('/pods') ? [...cluster.pods.values()].map(podJson) : []);
    });
    ends.push(() => server.close());
    cluster = new Cluster(server, version);
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
    for (const watch of this.#watches) watch.write(lineOf('MODIFIED', podJson(pod)));
  }

  remove(name: string): void {
    const pod = this.pods.get(name);
    if (pod === undefined) return;
    this.pods.delete(name);
    for (const watch of this.#watches) watch.write(lineOf('DELETED', podJson({ ...pod, version: ++this.version })));
  }

  stop(): void {
    this.isDown = true;
    for (const watch of this.#watches) watch.destroy();
    this.#watches.clear();
  }
}

/** The main thread of a node: applies the messages, and keeps the store. */
class Node {
  readonly messages: MembersMessage[] = [];
  readonly reflectors: ReflectorChange[] = [];
  readonly failures: string[] = [];
  readonly record = new MemberRecord();
  readonly owners = new Map<number, OwnerName>();
  readonly store: Map<string, string>;
  scope: SelectorScope | undefined;
  readonly source: KubernetesSource;
  /** Resolves before the listener takes a message. */
  gate: Promise<void> = Promise.resolve();
  restored = 0;

  constructor(store = new Map<string, string>(), options = OPTIONS) {
    this.store = store;
    this.source = createKubernetesSource(options);
    ends.push(() => this.source.close());
  }

  async open(
    integrations: readonly WatchedIntegration[],
    selectors: readonly Selector[] | null = [web],
  ): Promise<this> {
    this.source.use(integrations);
    if (selectors !== null) this.source.name(selectors);
    const listener: KubernetesListener = {
      members: (message) => this.#take(message),
      reflector: (change) => this.reflectors.push(change),
      failed: (reason) => this.failures.push(reason),
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
    const shown = [...addresses]
      .sort((a, b) => a - b)
      .map((address) => {
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

  async #take(message: MembersMessage): Promise<void> {
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

describe('the Kubernetes thread', () => {
  test('gives the members of the first lists at once, and then their changes', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    expect(node.messages[0]?.replaces).not.toBe(null);
    expect([...(node.scope?.resolved ?? [])]).toEqual([web.key]);
    cluster.put('b', '10.0.0.2', 'web');
    cluster.put('c', '10.0.0.3', 'db');
    await vi.waitFor(() =>
      expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.2': 'b: web', '10.0.0.3': 'c: ' }),
    );
    cluster.remove('a');
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.2': 'b: web', '10.0.0.3': 'c: ' }));
    expect(node.messages.slice(1).every(({ replaces }) => replaces === null)).toBe(true);
    expect([node.phase('pods'), node.phase('nodes')]).toEqual(['watching', 'watching']);
  });

  test('sends nothing while the listener takes a message, and then one change for each address', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    let release = (): void => {};
    node.gate = new Promise((resolve) => {
      release = resolve;
    });
    const before = node.messages.length;
    cluster.put('b', '10.0.0.2', 'web');
    await vi.waitFor(() => expect(node.messages).toHaveLength(before + 1));
    for (let round = 0; round < 20; round++) {
      cluster.put('b', '10.0.0.2', round % 2 === 0 ? 'db' : 'web');
      cluster.put('c', '10.0.0.3', 'web');
    }
    cluster.put('c', '10.0.0.3', 'db');
    const seen = async () => (await node.source.facts('prod')).objects.pods;
    await vi.waitFor(async () => expect(await seen()).toBe(3));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(node.messages).toHaveLength(before + 1);
    release();
    await vi.waitFor(() =>
      expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.2': 'b: web', '10.0.0.3': 'c: ' }),
    );
    expect(node.messages).toHaveLength(before + 2);
  });

  test('compiles with the members that the listener has, after the selectors of a proposal are resolved', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    cluster.put('b', '10.0.0.2', 'db');
    const node = await new Node().open([cluster.integration], []);
    await vi.waitFor(() => expect(node.messages).toHaveLength(1));
    expect(node.members).toEqual({});
    const { scope, list } = await node.source.membership([db], 10_000);
    expect([...scope.resolved]).toEqual([db.key]);
    expect(node.members).toEqual({ '10.0.0.1': 'a: ', '10.0.0.2': 'b: db' });
    const given = new MemberRecord();
    given.replace(list);
    for (const address of [ip('10.0.0.1'), ip('10.0.0.2')])
      expect(given.setOf(address)).toEqual(node.record.setOf(address));
    expect(scope).toEqual(node.scope);
  });

  test('waits for the first lists of each integration, but not longer than `membership`', async () => {
    const [cluster, silent] = [await Cluster.start(), await Cluster.start()];
    silent.isDown = true;
    cluster.put('a', '10.0.0.1', 'web');
    const other = podSelector({}, 'other');
    const node = await new Node().open([cluster.integration, silent.as('other')], [web, other]);
    await vi.waitFor(() => expect(node.phase('pods')).toBeDefined());
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(node.messages).toEqual([]);
    const { scope } = await node.source.membership([web, other], 100);
    expect([[...scope.resolved], node.members]).toEqual([[web.key], { '10.0.0.1': 'a: web' }]);
  });

  test('gives the members of the store at once while the server is down, also an owner that start times do not tell', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const first = await new Node().open([cluster.integration]);
    await vi.waitFor(() => expect(first.members).toEqual({ '10.0.0.1': 'a: web' }));
    // `b` takes the address and goes. The claim of `a` does not come back.
    cluster.put('b', '10.0.0.1', 'db');
    await vi.waitFor(() => expect(first.members).toEqual({ '10.0.0.1': 'b: ' }));
    cluster.remove('b');
    cluster.put('c', '10.0.0.3', 'web');
    await vi.waitFor(() => expect(first.members).toEqual({ '10.0.0.3': 'c: web' }));
    cluster.stop();
    await first.source.close();
    const second = await new Node(first.store).open([cluster.integration]);
    await vi.waitFor(() => expect(second.members).toEqual({ '10.0.0.3': 'c: web' }));
    expect([...(second.scope?.resolved ?? [])]).toEqual([web.key]);
    cluster.pods.delete('c');
    cluster.isDown = false;
    await vi.waitFor(() => expect(second.members).toEqual({}));
  });

  test('takes no objects of the store that are incomplete, of another cluster or of another integration', async () => {
    const [cluster, another] = [await Cluster.start(), await Cluster.start()];
    cluster.put('a', '10.0.0.1', 'web');
    const first = await new Node().open([cluster.integration]);
    await vi.waitFor(() => expect(first.members).toEqual({ '10.0.0.1': 'a: web' }));
    await first.source.close();
    expect([...first.store.keys()].sort()).toEqual(['prod/complete', 'prod/pods/a']);
    const start = async (store: Map<string, string>, integration: WatchedIntegration) => {
      const node = await new Node(store).open([integration]);
      await vi.waitFor(() => expect(node.messages.length).toBeGreaterThan(0));
      return node;
    };
    another.put('x', '10.0.0.9', 'web');
    const second = await start(new Map(first.store), another.integration);
    expect(second.members).toEqual({ '10.0.0.9': 'x: web' });
    expect([...second.store.keys()].sort()).toEqual(['prod/complete', 'prod/pods/x']);
    const third = await start(new Map(first.store), another.as('other'));
    expect([...third.store.keys()].sort()).toEqual(['other/complete']);
    const incomplete = new Map(first.store);
    incomplete.delete('prod/complete');
    cluster.pods.clear();
    expect((await start(incomplete, cluster.integration)).members).toEqual({});
  });

  test('keeps the members of a cluster until the lists of another cluster are complete', async () => {
    const [cluster, another] = [await Cluster.start(1_000), await Cluster.start(5)];
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    another.isDown = true;
    another.put('x', '10.0.0.1', 'web');
    another.put('y', '10.0.0.2', 'web');
    node.source.use([another.integration]);
    await vi.waitFor(() => expect(node.phase('pods')).toBe('backing_off'));
    cluster.put('b', '10.0.0.3', 'web');
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.3': 'b: web' }));
    another.isDown = false;
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'x: web', '10.0.0.2': 'y: web' }));
    expect([...node.store.keys()].sort()).toEqual(['prod/complete', 'prod/pods/x', 'prod/pods/y']);
  });

  test('removes the objects of an integration that is not used any more, also from the store', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    node.source.use([]);
    await vi.waitFor(() => expect(node.members).toEqual({}));
    expect([node.store.size, node.phase('pods'), node.phase('nodes')]).toEqual([0, null, null]);
    await vi.waitFor(async () => expect(await cluster.server.connections).toBe(0));
  });

  test('starts again after an error, with the members of the store', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    // A message that the listener does not take ends the thread.
    node.gate = Promise.reject(new Error('the disk is full'));
    node.gate.catch(() => {});
    cluster.put('b', '10.0.0.2', 'web');
    await vi.waitFor(() => expect(node.failures).toEqual(['the members were not taken: the disk is full']));
    expect(node.phase('pods')).toBe('backing_off');
    const before = node.messages.length;
    node.gate = Promise.resolve();
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.2': 'b: web' }));
    expect([node.restored, node.messages[before]?.replaces?.added[0]?.number]).toEqual([2, 1]);
    expect(node.phase('pods')).toBe('watching');
  });

  test('sends a large list in parts, and calls it complete in the last part', async () => {
    const cluster = await Cluster.start();
    for (let index = 0; index < 1_200; index++)
      cluster.put(`p${index}`, `10.0.${Math.floor(index / 250)}.${index % 250}`, 'web');
    const node = await new Node().open([cluster.integration]);
    await vi.waitFor(() => expect(node.store.has('prod/complete')).toBe(true));
    expect(
      node.messages.map(({ replaces, owners, stored }) => [replaces?.addresses.length, owners.length, stored.length]),
    ).toEqual([
      [1_200, 500, 501],
      [undefined, 500, 500],
      [undefined, 200, 201],
    ]);
    expect(node.messages[0]?.stored[0]).toEqual({ key: 'prod/complete', value: null });
    const page = await node.source.membersOf([web.key], ip('10.0.0.248'), 2);
    expect(page.members.map(({ address, owner }) => [formatAddress(address), owner.name])).toEqual([
      ['10.0.0.249', 'p249'],
      ['10.0.1.0', 'p250'],
    ]);
    expect(page.total).toBe(1_200);
  });

  test('tells the objects, selectors and warnings of an integration', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration], [web, db]);
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    expect(await node.source.facts('prod')).toEqual({
      objects: { pods: 1, nodes: 0, namespaces: 0 },
      selectors: [
        { key: web.key, resolved: true, addresses: 1 },
        { key: db.key, resolved: true, addresses: 0 },
      ],
      warnings: [
        {
          code: 'pods_not_closed',
          message:
            'the networks of pods are not known: no deny rule by a selector matches a new pod until its status arrives',
        },
      ],
    });
  });

  test('reads the address, the CA and the token of its own cluster from the environment and from files', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const folder = join(temporaryFolder(), 'account');
    mkdirSync(folder);
    writeFileSync(join(folder, 'ca.crt'), cluster.server.caPem);
    writeFileSync(join(folder, 'token'), 'token-1\n');
    const { hostname, port } = new URL(cluster.server.url);
    vi.stubEnv('KUBERNETES_SERVICE_HOST', hostname);
    vi.stubEnv('KUBERNETES_SERVICE_PORT', port);
    ends.push(() => {
      vi.unstubAllEnvs();
    });
    const node = new Node(undefined, { ...OPTIONS, serviceAccountFolder: folder });
    await node.open([{ name: 'prod', access: { by: 'in_cluster' } }]);
    await vi.waitFor(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    writeFileSync(join(folder, 'token'), 'token-2\n');
    cluster.stop();
    cluster.isDown = false;
    await vi.waitFor(() => expect(cluster.server.asked.at(-1)?.authorization).toBe('Bearer token-2'));
  });

  test('reports a refusal of the server with its sentence', async () => {
    const server = await ScriptedServer.start((_, response) => sendStatus(response, 403, 'pods is forbidden'));
    ends.push(() => server.close());
    const access = { by: 'token', url: server.url, caPem: server.caPem, token: 't' } as const;
    const node = await new Node().open([{ name: 'prod', access }]);
    await vi.waitFor(() => expect(node.phase('pods')).toBe('forbidden'));
    expect(node.reflectors.findLast(({ name }) => name === 'pods')).toMatchObject({
      integration: 'prod',
      reason: '403: pods is forbidden',
    });
  });
});
