import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { formatAddress } from '#addresses/ip-address.js';
import type { WatchedIntegration } from '#contracts/kubernetes/kubernetes-source.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { eventually } from '#test/eventually.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { ip, podSelector } from './sample.js';
import { ScriptedServer, sendStatus } from './scripted-server.js';
import { Cluster, db, ends, Node, OPTIONS, web } from './thread-node.js';

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

describe('the Kubernetes thread', () => {
  test('the Kubernetes thread delivers the members (addresses that selectors select) of the first lists at once, and then each change', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    expect(node.messages[0]?.replaces).not.toBe(null);
    expect([...(node.scope?.resolved ?? [])]).toEqual([web.key]);
    cluster.put('b', '10.0.0.2', 'web');
    cluster.put('c', '10.0.0.3', 'db');
    await eventually(() =>
      expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.2': 'b: web', '10.0.0.3': 'c: ' }),
    );
    cluster.remove('a');
    await eventually(() => expect(node.members).toEqual({ '10.0.0.2': 'b: web', '10.0.0.3': 'c: ' }));
    expect(node.messages.slice(1).every(({ replaces }) => replaces === null)).toBe(true);
    expect([node.phase('pods'), node.phase('nodes')]).toEqual(['watching', 'watching']);
  });

  test('the Kubernetes thread sends no message while its listener handles one, and then one message with one change for each address', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    let release = (): void => {};
    node.gate = new Promise((resolve) => {
      release = resolve;
    });
    const before = node.messages.length;
    cluster.put('b', '10.0.0.2', 'web');
    await eventually(() => expect(node.messages).toHaveLength(before + 1));
    for (let round = 0; round < 20; round++) {
      cluster.put('b', '10.0.0.2', round % 2 === 0 ? 'db' : 'web');
      cluster.put('c', '10.0.0.3', 'web');
    }
    cluster.put('c', '10.0.0.3', 'db');
    const seen = async () => (await node.source.facts('prod')).objects.pods;
    await eventually(async () => expect(await seen()).toBe(3));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(node.messages).toHaveLength(before + 1);
    release();
    await eventually(() =>
      expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.2': 'b: web', '10.0.0.3': 'c: ' }),
    );
    expect(node.messages).toHaveLength(before + 2);
  });

  test('the Kubernetes thread resolves the selectors of a proposed policy, and returns the same members (selected addresses) as the listener has received', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    cluster.put('b', '10.0.0.2', 'db');
    const node = await new Node().open([cluster.integration], []);
    await eventually(() => expect(node.messages).toHaveLength(1));
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

  test('the Kubernetes thread watches the objects for the selectors of a proposed policy until these selectors are released', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    cluster.put('b', '10.0.0.2', 'db');
    const node = await new Node().open([cluster.integration]);
    await node.source.membership([db], 10_000);
    expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.2': 'b: db' });
    node.source.release();
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.2': 'b: ' }));
    expect([...(node.scope?.resolved ?? [])]).toEqual([web.key]);
    node.source.setSelectors([]);
    await eventually(async () => expect(await cluster.server.connections).toBe(0));
    await node.source.membership([db], 10_000);
    await eventually(() => expect(node.phase('pods')).toBe('watching'));
    expect(await cluster.server.connections).toBe(2);
    node.source.release();
    await eventually(async () => expect(await cluster.server.connections).toBe(0));
    expect(node.phase('pods')).toBe(null);
  });

  test('the Kubernetes thread does not use released selectors again after an error', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'db');
    const node = await new Node().open([cluster.integration]);
    await node.source.membership([db], 10_000);
    node.source.release();
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: ' }));
    node.gate = Promise.reject(new Error('the disk is full'));
    node.gate.catch(() => {});
    cluster.put('b', '10.0.0.2', 'db');
    await eventually(() => expect(node.failures).toHaveLength(1));
    node.gate = Promise.resolve();
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: ', '10.0.0.2': 'b: ' }));
  });

  test('the Kubernetes thread waits for the first lists of each integration, but not longer than the time limit of the caller', async () => {
    const [cluster, silent] = [await Cluster.start(), await Cluster.start()];
    silent.isDown = true;
    cluster.put('a', '10.0.0.1', 'web');
    const other = podSelector({}, 'other');
    const node = await new Node().open([cluster.integration, silent.as('other')], [web, other]);
    await eventually(() => expect(node.phase('pods')).toBeDefined());
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(node.messages).toEqual([]);
    const { scope } = await node.source.membership([web, other], 100);
    expect([[...scope.resolved], node.members]).toEqual([[web.key], { '10.0.0.1': 'a: web' }]);
  });

  test('the Kubernetes thread delivers the changes of an integration after a restart, even if the API server of another integration never returns a list of objects', async () => {
    const [cluster, silent] = [await Cluster.start(), await Cluster.start()];
    cluster.put('a', '10.0.0.1', 'web');
    const first = await new Node().open([cluster.integration]);
    await eventually(() => expect(first.members).toEqual({ '10.0.0.1': 'a: web' }));
    await first.source.close();
    silent.isDown = true;
    const second = new Node(first.store, { ...OPTIONS, firstMessageMs: 300 });
    await second.open([cluster.integration, silent.as('other')], [web, podSelector({}, 'other')]);
    await eventually(() => expect(second.members).toEqual({ '10.0.0.1': 'a: web' }));
    cluster.remove('a');
    await eventually(() => expect(second.members).toEqual({}));
    expect([...(second.scope?.resolved ?? [])]).toEqual([web.key]);
  });

  test('the Kubernetes thread delivers the members that were stored before a restart while the server is down, even if start times of pods do not tell which pod owns an address', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const first = await new Node().open([cluster.integration]);
    await eventually(() => expect(first.members).toEqual({ '10.0.0.1': 'a: web' }));
    cluster.put('b', '10.0.0.1', 'db');
    cluster.put('c', '10.0.0.3', 'web');
    const members = { '10.0.0.1': 'b: ', '10.0.0.3': 'c: web' };
    await eventually(() => expect(first.members).toEqual(members));
    cluster.stop();
    await first.source.close();
    const second = await new Node(first.store).open([cluster.integration]);
    await eventually(() => expect(second.members).toEqual(members));
    expect([...(second.scope?.resolved ?? [])]).toEqual([web.key]);
    // Pod `a` still runs and claims the address that pod `b` has.
    cluster.pods.delete('b');
    cluster.isDown = false;
    await eventually(() => expect(second.members).toEqual({ ...members, '10.0.0.1': 'a: web' }));
  });

  test('the Kubernetes thread ignores stored objects that are incomplete, of another cluster or of another integration', async () => {
    const [cluster, another] = [await Cluster.start(), await Cluster.start()];
    cluster.put('a', '10.0.0.1', 'web');
    const first = await new Node().open([cluster.integration]);
    await eventually(() => expect(first.members).toEqual({ '10.0.0.1': 'a: web' }));
    await first.source.close();
    expect([...first.store.keys()].sort()).toEqual(['prod/complete', 'prod/pods/a']);
    const start = async (store: Map<string, string>, integration: WatchedIntegration) => {
      const node = await new Node(store).open([integration]);
      await eventually(() => expect(node.scope).toBeDefined());
      return node;
    };
    another.put('x', '10.0.0.9', 'web');
    const second = await start(new Map(first.store), another.integration);
    expect(second.members).toEqual({ '10.0.0.9': 'x: web' });
    await eventually(() => expect([...second.store.keys()].sort()).toEqual(['prod/complete', 'prod/pods/x']));
    const third = await start(new Map(first.store), another.as('other'));
    await eventually(() => expect([...third.store.keys()].sort()).toEqual(['other/complete']));
    const incomplete = new Map(first.store);
    incomplete.delete('prod/complete');
    cluster.pods.clear();
    expect((await start(incomplete, cluster.integration)).members).toEqual({});
  });

  test('the Kubernetes thread keeps the members (selected addresses) of a cluster until the lists of another cluster are complete', async () => {
    const [cluster, another] = [await Cluster.start(1_000), await Cluster.start(5)];
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    another.isDown = true;
    another.put('x', '10.0.0.1', 'web');
    another.put('y', '10.0.0.2', 'web');
    node.source.setIntegrations([another.integration]);
    await eventually(() => expect(node.phase('pods')).toBe('backing_off'));
    cluster.put('b', '10.0.0.3', 'web');
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.3': 'b: web' }));
    another.isDown = false;
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'x: web', '10.0.0.2': 'y: web' }));
    expect([...node.store.keys()].sort()).toEqual(['prod/complete', 'prod/pods/x', 'prod/pods/y']);
  });

  test('the Kubernetes thread removes the objects of an integration that is no longer used, also from the store', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    node.source.setIntegrations([]);
    await eventually(() => expect(node.members).toEqual({}));
    expect([node.store.size, node.phase('pods'), node.phase('nodes')]).toEqual([0, null, null]);
    await eventually(async () => expect(await cluster.server.connections).toBe(0));
  });

  test('the Kubernetes thread starts again after an error, with the members (selected addresses) that it had stored before', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration]);
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    // A message that the listener rejects ends the thread.
    node.gate = Promise.reject(new Error('the disk is full'));
    node.gate.catch(() => {});
    // The next thread can start at any time after the callback.
    const atFailure = new Promise<readonly Promise<unknown>[]>((resolve) => {
      node.onFailure = () => {
        node.gate = Promise.resolve();
        seen = [node.restored, node.messages.length];
        resolve([
          node.source.facts('prod'),
          node.source.objectCounts('prod'),
          node.source.membersOf([web.key], null, 1),
        ]);
      };
    });
    let seen: readonly [restored: number, messages: number] = [0, 0];
    cluster.put('b', '10.0.0.2', 'web');
    const asked = await Promise.allSettled(await atFailure);
    expect(asked.map(({ status }) => status)).toEqual(Array(3).fill('rejected'));
    expect(node.failures).toEqual(['the members were not taken: the disk is full']);
    const [restored, before] = seen;
    expect(restored).toBe(1);
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web', '10.0.0.2': 'b: web' }));
    expect([node.restored, node.messages[before]?.replaces?.added[0]?.number]).toEqual([2, 1]);
    expect(node.reflectors.map(({ phase }) => phase)).toContain('backing_off');
    expect(node.phase('pods')).toBe('watching');
  });

  test('the Kubernetes thread starts again after an error with the selectors of a proposed policy too', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'db');
    const node = await new Node().open([cluster.integration]);
    await node.source.membership([db], 10_000);
    expect(node.members).toEqual({ '10.0.0.1': 'a: db' });
    node.gate = Promise.reject(new Error('the disk is full'));
    node.gate.catch(() => {});
    cluster.put('b', '10.0.0.2', 'db');
    await eventually(() => expect(node.failures).toHaveLength(1));
    node.gate = Promise.resolve();
    await eventually(() => expect(node.messages.filter(({ replaces }) => replaces !== null)).toHaveLength(2));
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: db', '10.0.0.2': 'b: db' }));
    expect([...(node.scope?.resolved ?? [])].sort()).toEqual([web.key, db.key].sort());
  });

  test('the Kubernetes thread sends a large list in parts, and marks the list as complete in the last part', async () => {
    const cluster = await Cluster.start();
    for (let index = 0; index < 1_200; index++)
      cluster.put(`p${index}`, `10.0.${Math.floor(index / 250)}.${index % 250}`, 'web');
    const node = await new Node().open([cluster.integration]);
    await eventually(() => expect(node.store.has('prod/complete')).toBe(true));
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

  test('the Kubernetes thread removes the stored objects of an integration if one of them is damaged, and lists again', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const first = await new Node().open([cluster.integration]);
    await eventually(() => expect(first.members).toEqual({ '10.0.0.1': 'a: web' }));
    await first.source.close();
    const damaged = new Map(first.store).set('prod/pods/x', '{"object":{"resource":"pods"},"owned":[]}');
    const second = await new Node(damaged).open([cluster.integration]);
    await eventually(() => expect(second.members).toEqual({ '10.0.0.1': 'a: web' }));
    expect([...second.store.keys()].sort()).toEqual(['prod/complete', 'prod/pods/a']);
    expect(second.failures).toEqual([]);
  });

  test('the Kubernetes thread does not write objects of a list that the store already has', async () => {
    const cluster = await Cluster.start();
    for (let index = 0; index < 600; index++)
      cluster.put(`p${index}`, `10.0.${Math.floor(index / 250)}.${index % 250}`, 'web');
    const first = await new Node().open([cluster.integration]);
    await eventually(() => expect(first.store.has('prod/complete')).toBe(true));
    await first.source.close();
    cluster.pods.delete('p7');
    cluster.version++;
    const second = await new Node(first.store).open([cluster.integration]);
    await eventually(() => expect(second.store.has('prod/pods/p7')).toBe(false));
    cluster.put('p8', '10.0.0.8', 'db');
    await eventually(() => expect(second.members['10.0.0.8']).toBe('p8: '));
    const written = second.messages.flatMap(({ stored }) => stored);
    expect(new Set(written.map(({ key }) => key))).toEqual(new Set(['prod/complete', 'prod/pods/p7', 'prod/pods/p8']));
    expect(written.filter(({ key, value }) => key === 'prod/complete' && value === null)).toEqual([]);
  });

  test('the Kubernetes thread returns the objects, selectors and warnings of an integration', async () => {
    const cluster = await Cluster.start();
    cluster.put('a', '10.0.0.1', 'web');
    const node = await new Node().open([cluster.integration], [web, db]);
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    expect(await node.source.facts('prod')).toEqual({
      objects: { pods: 1, nodes: 0, namespaces: 0 },
      selectors: [
        { key: web.key, resolved: true, addresses: 1, networks: 0 },
        { key: db.key, resolved: true, addresses: 0, networks: 0 },
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

  test('the Kubernetes thread reads the address, the CA and the token of its own cluster from the environment and from files', async () => {
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
    await eventually(() => expect(node.members).toEqual({ '10.0.0.1': 'a: web' }));
    writeFileSync(join(folder, 'token'), 'token-2\n');
    cluster.stop();
    cluster.isDown = false;
    await eventually(() => expect(cluster.server.asked.at(-1)?.authorization).toBe('Bearer token-2'));
  });

  test('the Kubernetes thread reports a refusal of the server with the error text of the server', async () => {
    const server = await ScriptedServer.start((_, response) => sendStatus(response, 403, 'pods is forbidden'));
    ends.push(() => server.close());
    const access = { by: 'token', url: server.url, caPem: server.caPem, token: 't' } as const;
    const node = await new Node().open([{ name: 'prod', access }]);
    await eventually(() => expect(node.phase('pods')).toBe('forbidden'));
    expect(node.reflectors.findLast(({ name }) => name === 'pods')).toMatchObject({
      integration: 'prod',
      reason: '403: pods is forbidden',
    });
  });
});
