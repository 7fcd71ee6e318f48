import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compareAddresses } from '#addresses/ip-address.js';
import type { StoredObject } from '#contracts/kubernetes/kubernetes-source.js';
import type { Selector } from '#contracts/policy/policy-model.js';
import { Memberships } from '#kubernetes/members/memberships.js';
import { ObjectChanges, StoredRecords } from '#kubernetes/thread/stored-objects.js';
import { Random, seedOf } from '#test/seed.js';
import { RandomCluster, randomSelector, randomStep, SCOPES } from './random-cluster.js';
import { ip, ipv6, namespace, node, pod, scope } from './sample.js';

const NAMES = ['prod', 'test'];

/** Memberships, and the store as it is after the changes that they report. */
class Stored {
  readonly changes = new ObjectChanges();
  readonly memberships = new Memberships({
    maxObjects: 20,
    objectChanged: (integration, resource, uid) => this.changes.changed(integration, resource, uid),
  });
  readonly store = new Map<string, string>();

  /** Writes the changes to the store. */
  flush(): void {
    this.memberships.drainChanges();
    const { objects, complete } = this.changes.drain((name) => ({
      cluster: this.memberships.objectsOf(name) === undefined ? undefined : 'cluster',
      objects: this.memberships.objectsOf(name),
    }));
    for (const { key, value } of [...objects, ...complete]) {
      if (value === null) this.store.delete(key);
      else this.store.set(key, value);
    }
  }
}

/** Returns the members and the selector resolution of a process that begins with a store. */
function restored(store: ReadonlyMap<string, string>, selectors: readonly Selector[]) {
  const records = new StoredRecords();
  records.add([...store].map(([key, value]): StoredObject => ({ key, value })));
  const memberships = new Memberships();
  memberships.setSelectors(selectors);
  for (const name of NAMES) {
    const found = records.objectsOf(name);
    if (found !== undefined) memberships.restore(name, found.objects, found.scopes);
  }
  memberships.drainChanges();
  return plain(memberships);
}

function plain(memberships: Memberships) {
  const { added, addresses, sets } = memberships.list();
  const keys = new Map(added.map((set) => [set.number, set.keys]));
  const { resolved, podNetworks, networks } = memberships.resolution;
  return {
    members: [...addresses]
      .map((address, at) => [address, keys.get(sets[at] ?? 0) ?? 'deny-only', memberships.owners.get(address)] as const)
      .sort(([a], [b]) => compareAddresses(a, b)),
    resolved: [...resolved].sort(),
    podNetworks,
    networks: [...networks].sort(([a], [b]) => (a < b ? -1 : 1)),
  };
}

describe('stored objects', () => {
  test('the stored Kubernetes objects give a later process the same members, owners and resolved selectors after random messages', () => {
    let members = 0;
    const property = fc.property(fc.integer(), fc.integer({ min: 1, max: 100 }), (seed, steps) => {
      const random = new Random(seed);
      const stored = new Stored();
      const clusters = new Map(NAMES.map((name) => [name, new RandomCluster(random)]));
      const selectors = random.some(1, 8, () => randomSelector(random, random.pick(NAMES)));
      stored.memberships.setSelectors(selectors);
      for (let step = 0; step < steps; step++) {
        const { name, cluster, of, choice } = randomStep(random, clusters, NAMES);
        if (choice < 45) cluster.change();
        else if (choice < 90) {
          const message = cluster.next(of);
          if (message !== undefined) stored.memberships.receive(name, of, message);
        } else if (choice < 94) cluster.cut(of);
        else if (choice < 96) {
          cluster.cut(of);
          stored.memberships.endScope(name, of);
        } else if (choice < 97) cluster.restore();
        else if (choice < 98) {
          for (const each of SCOPES) cluster.cut(each);
          stored.memberships.clear(name);
        }
        stored.changes.scopesChanged(name);
        if (random.chance(0.4)) continue;
        stored.flush();
        const expected = plain(stored.memberships);
        expect(restored(stored.store, selectors)).toEqual(expected);
        members += expected.members.length;
      }
    });
    fc.assert(property, { seed: seedOf(24), numRuns: 300 });
    expect(members).toBeGreaterThan(5_000);
  });

  test('stored Kubernetes objects that are of another format or not JSON are not restored', () => {
    const records = (value: string) => {
      const stored = new StoredRecords();
      stored.add([{ key: 'prod/complete', value }]);
      return stored;
    };
    const complete = (format: number) => JSON.stringify({ format, cluster: 'c', scopes: [] });
    expect(records(complete(1)).objectsOf('prod')).toEqual({ cluster: 'c', objects: [], scopes: [] });
    expect(records(complete(2)).objectsOf('prod')).toBeUndefined();
    expect(records('{').objectsOf('prod')).toBeUndefined();
    expect(records(complete(1)).objectsOf('pro')).toBeUndefined();
  });

  test('stored Kubernetes objects keep their IPv6 addresses and networks, and a process with the other setting for IPv6 does not use them', () => {
    const changes = new ObjectChanges(true);
    const memberships = new Memberships({
      objectChanged: (name, resource, uid) => changes.changed(name, resource, uid),
    });
    // A label with the text of an IPv6 address stays a text.
    const dual = pod('a', { addresses: [ip('10.0.0.1'), ipv6('fd00::1')], labels: { ipv6: 'fd00::1' } });
    const host = node('b', { internal: [ipv6('fd00::2')], podNetworks: [{ address: ipv6('fd00:1::'), length: 64 }] });
    memberships.receive('prod', scope('pods'), { type: 'listed', objects: [dual], version: 1 });
    memberships.receive('prod', scope('nodes'), { type: 'listed', objects: [host], version: 1 });
    const { objects, complete } = changes.drain(() => ({ cluster: 'c', objects: memberships.objectsOf('prod') }));
    const restoredBy = (hasIpv6: boolean) => {
      const records = new StoredRecords(hasIpv6);
      records.add([...objects, ...complete]);
      return records.objectsOf('prod')?.objects;
    };
    expect(restoredBy(true)).toEqual([
      {
        object: dual,
        owned: [
          [ip('10.0.0.1'), 0, 1],
          [ipv6('fd00::1'), 0, 1],
        ],
      },
      { object: host, owned: [[ipv6('fd00::2'), 0, 1]] },
    ]);
    expect(restoredBy(false)).toBeUndefined();
  });

  test('stored Kubernetes objects with an unexpected shape are not restored, and no other object of their integration either', () => {
    const owned = [[1, 2, 3]];
    const good = [
      { object: pod('a', { labels: { app: 'web' }, undecided: true }), owned },
      { object: node('b', { internal: [7], podNetworks: [{ address: 256, length: 24 }] }), owned: [] },
      { object: namespace('c'), owned: [] },
    ];
    const scopes = [{ scope: scope('pods', 'shop'), version: 4 }];
    const restore = (objects: readonly unknown[], complete: unknown = scopes) => {
      const stored = new StoredRecords();
      const record = (key: string, value: unknown) => ({ key: `prod/${key}`, value: JSON.stringify(value) });
      stored.add([
        record('complete', { format: 1, cluster: 'c', scopes: complete }),
        ...objects.map((object, index) => record(`pods/${index}`, object)),
      ]);
      return stored.objectsOf('prod');
    };
    expect(restore(good)).toEqual({ cluster: 'c', objects: good, scopes });
    const { labels: _, ...unlabelled } = pod('d');
    for (const bad of [
      null,
      'text',
      {},
      { object: null, owned },
      { object: pod('d') },
      { object: unlabelled, owned },
      { object: { ...pod('d'), resource: 'services' }, owned },
      { object: { ...pod('d'), resource: 'nodes' }, owned },
      { object: { ...pod('d'), addresses: [-1] }, owned },
      { object: { ...node('d'), podNetworks: [{ address: 0, length: 33 }] }, owned },
      { object: pod('d'), owned: [[1, 2]] },
      { object: pod('d'), owned: [[1, 2, '3']] },
    ])
      expect([bad, restore([...good, bad])]).toEqual([bad, undefined]);
    for (const bad of [null, [null], [{ scope: null, version: 1 }], [{ scope: scope('pods') }]])
      expect([bad, restore(good, bad)]).toEqual([bad, undefined]);
  });
});
