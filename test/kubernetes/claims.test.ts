import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Address } from '#contracts/policy/policy-model.js';
import { Memberships } from '#kubernetes/members/memberships.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { Random, seedOf } from '#test/seed.js';
import { claimsOf, isRunning } from './membership-model.js';
import { RandomCluster } from './random-cluster.js';
import { ip, node, pod, scope } from './sample.js';

const X = ip('10.0.0.1');
const Y = ip('10.0.0.2');
const PODS = scope('pods');
const NODES = scope('nodes');

/** An integration `prod`. `ownerOf` returns the name of the object that owns an address. */
class Prod {
  readonly memberships = new Memberships();

  list(of: WatchScope, version: number, objects: readonly KubernetesObject[]): this {
    this.memberships.receive('prod', of, { type: 'listed', objects, version });
    return this;
  }

  change(of: WatchScope, ...objects: readonly KubernetesObject[]): this {
    for (const object of objects) this.memberships.receive('prod', of, { type: 'changed', object });
    return this;
  }

  remove(of: WatchScope, uid: string, version: number): this {
    this.memberships.receive('prod', of, { type: 'deleted', uid, version });
    return this;
  }

  ownerOf(address: number): string | undefined {
    return this.memberships.ownersOf(address)[0]?.object.name;
  }
}

const watched = () => new Prod().list(PODS, 1, []).list(NODES, 1, []);
const at = (version: number, addresses: readonly number[] = [X]) => ({ version, addresses });

describe('claims of Kubernetes objects to addresses', () => {
  const claims = (object: KubernetesObject, address = X) => {
    const of = object.resource === 'pods' ? PODS : NODES;
    return watched().change(of, object).ownerOf(address) !== undefined;
  };
  const addresses = [X, Y];

  test.each([
    ['each IPv4 address of a pod', pod('a', { addresses }), true],
    ['addresses of a pending pod', pod('a', { addresses, phase: 'Pending', running: false }), true],
    ['addresses of a terminating pod while a container runs', pod('a', { addresses, deleting: true }), true],
    ['no address of a terminated pod', pod('a', { addresses, deleting: true, running: false }), false],
    ['no address of a completed pod', pod('a', { addresses, phase: 'Succeeded' }), false],
    ['no address of a failed pod', pod('a', { addresses, phase: 'Failed' }), false],
    ['no address of a pod in the network of its node', pod('a', { addresses, hostNetwork: true }), false],
    ['internal addresses of a node', node('n', { internal: addresses }), true],
    ['external addresses of a node', node('n', { external: addresses }), true],
    ['no address of the pod networks of a node', node('n', { podNetworks: [{ address: X, length: 31 }] }), false],
  ])(
    'a Kubernetes object becomes the owner of the addresses that it can own, and of no others: it owns %s',
    (_, object, isClaimed) => {
      expect([claims(object), claims(object, Y)]).toEqual([isClaimed, isClaimed]);
    },
  );
});

describe('the owner of an address', () => {
  test('the Kubernetes owner of an address is the last object that got the address in its status', () => {
    expect(
      watched()
        .change(PODS, pod('a', at(2)), pod('b', at(3)))
        .ownerOf(X),
    ).toBe('b');
    expect(
      watched()
        .change(PODS, pod('a', at(2)))
        .change(NODES, node('n', { version: 3, internal: [X] }))
        .ownerOf(X),
    ).toBe('n');
  });

  test('the Kubernetes owner of an address stays the owner when an object that got the address earlier is deleted, changes or completes', () => {
    const both = () => watched().change(PODS, pod('a', at(2)), pod('b', at(3)));
    expect(both().remove(PODS, 'a', 4).ownerOf(X)).toBe('b');
    expect(
      both()
        .change(PODS, pod('a', { ...at(4), labels: { app: 'a' } }))
        .ownerOf(X),
    ).toBe('b');
    expect(
      both()
        .change(PODS, pod('a', { ...at(4), phase: 'Succeeded' }))
        .ownerOf(X),
    ).toBe('b');
    expect(
      both()
        .change(PODS, pod('a', at(4, [Y])))
        .ownerOf(X),
    ).toBe('b');
  });

  test.each([
    ['is deleted', (prod: Prod) => prod.remove(PODS, 'b', 4)],
    ['loses the address', (prod: Prod) => prod.change(PODS, pod('b', at(4, [Y])))],
    ['completes', (prod: Prod) => prod.change(PODS, pod('b', { ...at(4), phase: 'Failed' }))],
    ['is missing in a list', (prod: Prod) => prod.list(PODS, 4, [pod('a', at(2))])],
  ])('an address falls back to the running object that owned it before, when a later owner %s', (_, end) => {
    const prod = watched().change(PODS, pod('a', at(2)), pod('b', at(3)));
    expect([prod.ownerOf(X), end(prod).ownerOf(X)]).toEqual(['b', 'a']);
    expect(prod.change(PODS, pod('c', at(5))).ownerOf(X)).toBe('c');
  });

  test('an address falls back to the last of several running Kubernetes objects that owned it before', () => {
    const prod = watched().change(PODS, pod('a', at(2)), pod('b', at(3)), pod('c', at(4)), pod('d', at(5)));
    expect(prod.remove(PODS, 'b', 6).remove(PODS, 'd', 7).ownerOf(X)).toBe('c');
    expect(prod.remove(PODS, 'c', 8).ownerOf(X)).toBe('a');
  });

  test('an object that appears in a new list with an address becomes its Kubernetes owner, ahead of an object that owned it earlier', () => {
    const prod = watched().change(PODS, pod('a', at(2)), pod('b', at(3)));
    expect(prod.list(PODS, 9, [pod('a', at(2)), pod('c', at(8))]).ownerOf(X)).toBe('c');
  });

  test.each([
    ['is pending', { phase: 'Pending' }],
    ['terminates', { deleting: true }],
  ])(
    'an address does not fall back to a Kubernetes object that does not run (it %s) when its owner is deleted',
    (_, fields) => {
      const prod = watched()
        .change(PODS, pod('a', { ...at(2), ...fields }), pod('b', at(3)))
        .remove(PODS, 'b', 4);
      expect(prod.ownerOf(X)).toBeUndefined();
      const again = pod('a', { ...at(5), ...fields });
      expect(prod.change(PODS, again).ownerOf(X)).toBeUndefined();
      expect(prod.list(PODS, 6, [again]).ownerOf(X)).toBeUndefined();
      expect(
        prod
          .change(PODS, pod('a', { ...at(7, []), ...fields }))
          .change(PODS, pod('a', { ...at(8), ...fields }))
          .ownerOf(X),
      ).toBe('a');
    },
  );

  test('an older pod becomes the Kubernetes owner of an address as soon as it runs, if the later owner was deleted', () => {
    const prod = watched()
      .change(PODS, pod('a', { ...at(2), phase: 'Pending' }), pod('b', at(3)))
      .remove(PODS, 'b', 4);
    expect([prod.ownerOf(X), prod.change(PODS, pod('a', at(5))).ownerOf(X)]).toEqual([undefined, 'a']);
  });

  test('an object that got an address earlier than the Kubernetes owner, but is reported later by another watch, does not become the owner', () => {
    const shop = scope('pods', 'shop');
    const bank = scope('pods', 'bank');
    const prod = new Prod()
      .list(shop, 1, [])
      .list(bank, 1, [])
      .change(bank, pod('b', { ...at(3), namespace: 'bank' }));
    expect(prod.change(shop, pod('a', at(2))).ownerOf(X)).toBe('b');
    const gone = new Prod()
      .list(shop, 1, [])
      .list(bank, 1, [])
      .change(bank, pod('b', { ...at(3), namespace: 'bank' }));
    expect(
      gone
        .remove(bank, 'b', 4)
        .change(shop, pod('a', { ...at(2), phase: 'Pending' }))
        .ownerOf(X),
    ).toBeUndefined();
  });

  test('a Kubernetes object that is reported late and got its address earlier does not become the owner, even after thousands of other objects were deleted', () => {
    const shop = scope('pods', 'shop');
    const bank = scope('pods', 'bank');
    const prod = new Prod().list(shop, 1, []).list(bank, 1, []);
    prod.change(bank, pod('b', { ...at(3), namespace: 'bank' })).remove(bank, 'b', 4);
    for (let index = 1; index < 8192; index++) {
      const version = 2 * index + 3;
      const other = pod(`other-${index}`, { ...at(version, [X + 1 + index]), namespace: 'bank' });
      prod.change(bank, other).remove(bank, other.uid, version + 1);
    }
    expect(prod.change(shop, pod('a', { ...at(2), phase: 'Pending' })).ownerOf(X)).toBeUndefined();
  });

  test('the Kubernetes owner of an address that several objects have in a first list is the object that started later', () => {
    const early = pod('early', { ...at(9), started: 100 });
    const late = pod('late', { ...at(5), started: 200 });
    expect(new Prod().list(PODS, 10, [early, late]).ownerOf(X)).toBe('late');
    expect(new Prod().list(PODS, 10, [late, early]).ownerOf(X)).toBe('late');
  });

  test('the Kubernetes owner of an address that several objects have in a later list is the new object, regardless of the start times', () => {
    const old = pod('old', { ...at(2), started: 200 });
    const other = pod('new', { ...at(5), started: 100 });
    expect(watched().change(PODS, old).list(PODS, 6, [other, old]).ownerOf(X)).toBe('new');
  });

  test("two Kubernetes objects that exchange their addresses between two lists own each other's former address", () => {
    const prod = watched().change(PODS, pod('a', at(2)), pod('b', at(3, [Y])));
    prod.list(PODS, 9, [pod('a', at(7, [Y])), pod('b', at(8))]);
    expect([prod.ownerOf(X), prod.ownerOf(Y)]).toEqual(['b', 'a']);
  });

  test('the start times of objects decide the Kubernetes owner of an address after the server was restored to older versions', () => {
    const prod = watched().change(PODS, pod('a', { ...at(500), started: 100 }));
    const objects = [pod('a', { ...at(40), started: 100 }), pod('b', { ...at(30), started: 200 })];
    expect(prod.list(PODS, 50, objects).ownerOf(X)).toBe('b');
    expect(prod.change(PODS, pod('c', { ...at(51), started: 1 })).ownerOf(X)).toBe('c');
  });

  test('the Kubernetes owner of an address is the last object that got it in its status, or else a running object, for any order of the watches', () => {
    const scopes = [scope('pods', 'shop'), scope('pods', 'bank'), scope('pods', 'play'), NODES];
    const property = fc.property(fc.integer(), fc.integer({ min: 1, max: 60 }), (seed, changes) => {
      const random = new Random(seed);
      const cluster = new RandomCluster(random);
      const { memberships } = new Prod();
      for (const of of scopes) memberships.receive('prod', of, cluster.list(of));
      const last = new Map<Address, { readonly uid: string; readonly version: number }>();
      for (let change = 0; change < changes; change++) {
        const before = new Map(cluster.objects.map((object) => [object.uid, object]));
        cluster.change();
        for (const object of cluster.objects) {
          const old = claimsOf(before.get(object.uid));
          for (const address of claimsOf(object)) if (!old.includes(address)) last.set(address, object);
        }
        if (random.chance(0.5)) deliver(random.pick(scopes), random.below(4));
      }
      for (const of of [...scopes].sort(() => random.between(-1, 1))) deliver(of, Number.POSITIVE_INFINITY);

      for (const [address, { uid }] of last) {
        const claimer = cluster.objects.find((object) => object.uid === uid);
        const owner = memberships.ownersOf(address)[0]?.object;
        if (claimsOf(claimer).includes(address)) expect(owner?.uid).toBe(uid);
        else {
          const claimers = cluster.objects.filter((object) => claimsOf(object).includes(address));
          if (owner !== undefined || claimers.some(isRunning)) expect(claimers).toContainEqual(owner);
        }
      }

      function deliver(of: WatchScope, count: number): void {
        for (let left = count; left > 0; left--) {
          const message = cluster.deliver(of);
          if (message === undefined) return;
          memberships.receive('prod', of, message);
        }
      }
    });
    fc.assert(property, { seed: seedOf(25), numRuns: 1_000 });
  });
});
