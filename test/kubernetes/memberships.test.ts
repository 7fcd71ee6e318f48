import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import { formatPrefix, parseCidr } from '#addresses/ip-address.js';
import { DENY_ONLY_MEMBER, type SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import { type MembershipOptions, Memberships } from '#kubernetes/members/memberships.js';
import { factsOf, membersOf } from '#kubernetes/thread/integration-facts.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { Random } from '#test/seed.js';
import { ip, ipv6, namespace, node, nodeSelector, pod, podSelector, scope } from './sample.js';

const X = ip('10.1.0.1');
const Y = ip('10.1.0.2');
const PODS = scope('pods');
const NODES = scope('nodes');
const NAMESPACES = scope('namespaces');
const web = podSelector({ match_labels: { app: 'web' } });
const all = podSelector({});

function start(selectors: readonly Selector[], options: MembershipOptions = {}): Memberships {
  const memberships = new Memberships(options);
  memberships.setSelectors(selectors);
  return memberships;
}

function list(
  memberships: Memberships,
  of: WatchScope,
  objects: readonly KubernetesObject[],
  integration = 'prod',
): void {
  const version = Math.max(1, ...objects.map((object) => object.version));
  memberships.receive(integration, of, { type: 'listed', objects, version });
}

function network(text: string) {
  const parsed = parseCidr(text);
  if (parsed === undefined) throw new RangeError(text);
  return parsed.prefix;
}

const shown = ({ resolved, podNetworks, networks }: SelectorResolution) => ({
  resolved: [...resolved],
  podNetworks: podNetworks.map(formatPrefix),
  networks: [...networks].map(([key, prefixes]) => [key, prefixes.map(formatPrefix)]),
});
/** Returns which selectors are resolved after all changes. */
const resolutionNow = (memberships: Memberships) => {
  memberships.drainChanges();
  return memberships.resolution;
};
const DENY_ONLY = ['deny-only'];
/** Returns the changes as plain values: for each address, the keys of its selectors, or null. */
const plain = (memberships: Memberships) => {
  const changes = memberships.drainChanges();
  const sets = new Map(memberships.list().added.map((set) => [set.number, set.keys]));
  sets.set(DENY_ONLY_MEMBER.number, DENY_ONLY);
  return changes.map(({ addresses, sets: numbers }) =>
    [...addresses].map((address, at) => [address, sets.get(numbers[at] ?? 0) ?? null]),
  );
};

describe('changes of members', () => {
  test('the changes of Kubernetes members (addresses with the selectors that select them) contain removed members before added members', () => {
    const memberships = start([web]);
    const labels = { app: 'web' };
    list(memberships, PODS, [pod('a', { addresses: [X], labels }), pod('b', { addresses: [Y] })]);
    expect(plain(memberships)).toEqual([
      [
        [X, [web.key]],
        [Y, []],
      ],
    ]);
    const b = pod('b', { addresses: [Y], labels, version: 2 });
    memberships.receive('prod', PODS, { type: 'changed', object: b });
    memberships.receive('prod', PODS, { type: 'deleted', uid: 'a', version: 3 });
    expect(plain(memberships)).toEqual([[[X, null]], [[Y, [web.key]]]]);
    expect(memberships.drainChanges()).toEqual([]);
  });

  test('the changes of Kubernetes members (addresses with the selectors that select them) omit an address that has got the same selectors again', () => {
    const memberships = start([web]);
    list(memberships, PODS, [pod('a', { addresses: [X] })]);
    memberships.drainChanges();
    memberships.receive('prod', PODS, { type: 'deleted', uid: 'a', version: 2 });
    memberships.receive('prod', PODS, { type: 'changed', object: pod('b', { addresses: [X], version: 3 }) });
    expect([memberships.waiting, memberships.drainChanges()]).toEqual([1, []]);
  });

  test('the changes of Kubernetes members (addresses with the selectors that select them) refer to the selectors that the policies name at that time', () => {
    const memberships = start([web]);
    list(memberships, PODS, [pod('a', { addresses: [X], labels: { app: 'web' } })]);
    memberships.drainChanges();
    memberships.setSelectors([web, all]);
    expect(plain(memberships)).toEqual([[[X, [all.key, web.key].sort()]]]);
    memberships.setSelectors([all]);
    expect(plain(memberships)).toEqual([[[X, [all.key]]]]);
  });

  test('a change of the labels of a namespace changes the selectors that select the pods of the namespace', () => {
    const blue = podSelector({ namespace_selector: { match_labels: { team: 'blue' } } });
    const memberships = start([blue]);
    list(memberships, NAMESPACES, [namespace('shop'), namespace('bank')]);
    list(memberships, PODS, [pod('a', { addresses: [X] }), pod('b', { addresses: [Y], namespace: 'bank' })]);
    memberships.drainChanges();
    const object = namespace('shop', { team: 'blue' }, 2);
    memberships.receive('prod', NAMESPACES, { type: 'changed', object });
    expect(plain(memberships)).toEqual([[[X, [blue.key]]]]);
    memberships.receive('prod', NAMESPACES, { type: 'deleted', uid: object.uid, version: 3 });
    expect(plain(memberships)).toEqual([[[X, DENY_ONLY]]]);
  });

  test('a pod matches only deny rules while its namespace is unknown and a selector depends on the labels of the namespace', () => {
    const blue = podSelector({ match_labels: { app: 'web' }, namespace_selector: { match_labels: { team: 'blue' } } });
    const memberships = start([blue, all]);
    const labels = { app: 'web' };
    list(memberships, PODS, [pod('a', { addresses: [X], labels }), pod('b', { addresses: [Y] })]);
    // The selector by namespace is not resolved without a list of namespaces. The other selector is.
    const before = [
      [X, [all.key]],
      [Y, [all.key]],
    ];
    expect(plain(memberships)).toEqual([before]);
    list(memberships, NAMESPACES, [namespace('bank')]);
    expect(plain(memberships)).toEqual([[[X, DENY_ONLY]]]);
    expect(memberships.list().sets).toContain(DENY_ONLY_MEMBER.number);
    memberships.receive('prod', NAMESPACES, { type: 'changed', object: namespace('shop', { team: 'blue' }, 2) });
    expect(plain(memberships)).toEqual([[[X, [all.key, blue.key].sort()]]]);
  });

  test('the addresses of an object whose selectors cannot be evaluated match only deny rules, even if another integration owns the addresses', () => {
    const other = podSelector({}, 'test');
    const memberships = start([all, other]);
    list(memberships, PODS, [pod('a', { addresses: [X] })], 'test');
    list(memberships, PODS, [pod('a', { addresses: [X, Y], undecided: true })]);
    list(memberships, NODES, [node('n', { internal: [ip('192.0.2.1')], undecided: true })]);
    expect(plain(memberships)).toEqual([
      [
        [X, DENY_ONLY],
        [Y, DENY_ONLY],
        [ip('192.0.2.1'), DENY_ONLY],
      ],
    ]);
    const first = { code: 'objects_undecided', integration: 'prod', count: 2, first: 'shop/a' };
    expect(memberships.warnings('prod')).toContainEqual(first);
    memberships.receive('prod', PODS, { type: 'changed', object: pod('a', { addresses: [X], version: 2 }) });
    expect(plain(memberships)).toEqual([[[Y, null]], [[X, [all.key, other.key].sort()]]]);
  });

  test('a Kubernetes object that two integrations know is selected by the selectors of both integrations', () => {
    const other = podSelector({}, 'test');
    const memberships = start([web, other]);
    const a = pod('a', { addresses: [X], labels: { app: 'web' } });
    list(memberships, PODS, [a]);
    list(memberships, PODS, [a], 'test');
    expect(plain(memberships)).toEqual([[[X, [web.key, other.key].sort()]]]);
    expect([memberships.sharedAddresses(9), memberships.warnings('test')]).toEqual([
      [],
      [{ code: 'pods_not_closed', integration: 'test' }],
    ]);
    const named = (selector: Selector) =>
      membersOf(memberships, [selector.key], { after: null, limit: 9 }).members.map(({ owner }) => owner.integration);
    expect([named(web), named(other)]).toEqual([['prod'], ['test']]);
    memberships.remove('prod');
    expect(plain(memberships)).toEqual([[[X, [other.key]]]]);
  });

  test('an address that different objects of two integrations own matches only deny rules, with a warning, until one object is deleted', () => {
    const other = podSelector({}, 'test');
    const memberships = start([web, other], { podNetworks: [network('10.1.0.0/16')] });
    list(memberships, PODS, [pod('a', { addresses: [X, Y], labels: { app: 'web' } })]);
    list(memberships, PODS, [], 'test');
    memberships.drainChanges();
    memberships.receive('test', PODS, { type: 'changed', object: pod('b', { addresses: [X], version: 2 }) });
    expect(plain(memberships)).toEqual([[[X, DENY_ONLY]]]);
    const shared = [{ address: X, integrations: ['prod', 'test'] }];
    expect([memberships.drainShared(9), memberships.drainShared(9), memberships.sharedAddresses(9)]).toEqual([
      shared,
      [],
      shared,
    ]);
    expect([memberships.owners.get(X), memberships.owners.get(Y)?.name]).toEqual([undefined, 'a']);
    expect(membersOf(memberships, [web.key, other.key], { after: null, limit: 9 }).total).toBe(1);
    expect(factsOf('prod', memberships, [web]).warnings).toEqual([
      {
        code: 'address_shared',
        message:
          'other objects of the integration test have addresses of this one: 10.1.0.1 (shop/a here, shop/b there). No allow rule by a selector matches these addresses, and every deny rule by a selector does',
      },
    ]);
    expect(memberships.warnings('test')).toEqual([
      {
        code: 'address_shared',
        integration: 'test',
        other: 'prod',
        count: 1,
        examples: [{ address: X, own: 'shop/b', foreign: 'shop/a' }],
      },
    ]);
    memberships.receive('test', PODS, { type: 'deleted', uid: 'b', version: 3 });
    expect(plain(memberships)).toEqual([[[X, [web.key]]]]);
    expect([memberships.sharedAddresses(9), memberships.warnings('prod'), memberships.owners.get(X)?.name]).toEqual([
      [],
      [],
      'a',
    ]);
  });

  test('the Kubernetes objects of an ended watch are kept if the objects of another watch include them', () => {
    const memberships = start([all]);
    const shop = scope('pods', 'shop');
    list(memberships, shop, [pod('a', { addresses: [X] })]);
    memberships.drainChanges();
    list(memberships, PODS, [pod('a', { addresses: [X] }), pod('b', { addresses: [Y], namespace: 'bank' })]);
    memberships.endScope('prod', shop);
    expect(plain(memberships)).toEqual([[[Y, [all.key]]]]);
    memberships.endScope('prod', PODS);
    expect(plain(memberships)[0]).toHaveLength(2);
  });
});

describe('the numbers of sets', () => {
  const labelled = (index: number) => podSelector({ match_labels: { app: `app-${index}` } });
  const SELECTORS = Array.from({ length: 10 }, (_, index) => labelled(index));
  const change = (memberships: Memberships, index: number, version: number) => {
    const object = pod('a', { addresses: [X], labels: { app: `app-${index}` }, version });
    memberships.receive('prod', PODS, { type: 'changed', object });
    return memberships.drainChanges();
  };

  test('`Memberships.former` (last address of each set of selectors that selects none now) omits a set if the policies name other selectors since then', () => {
    const memberships = start([web]);
    const batch = labelled(1);
    const both = [web, batch];
    const pods = [
      pod('a', { addresses: [X], labels: { app: 'web' } }),
      pod('b', { addresses: [Y], labels: { app: 'app-1' } }),
    ];
    list(memberships, PODS, pods);
    memberships.drainChanges();
    // With the new selector, another set of selectors replaces the set of `Y`.
    memberships.setSelectors(both);
    memberships.drainChanges();
    expect(memberships.former().addresses).toHaveLength(0);
    memberships.receive('prod', PODS, { type: 'deleted', uid: 'a', version: 2 });
    memberships.drainChanges();
    expect(memberships.former().addresses).toEqual([X]);
    memberships.setSelectors(both);
    memberships.drainChanges();
    expect(memberships.former().addresses).toEqual([X]);
    // The new selector may also select a pod of the unused set, so `former` omits this set.
    memberships.setSelectors([...both, all]);
    memberships.drainChanges();
    expect(memberships.former().addresses).toHaveLength(0);
  });

  test('`Memberships.former` returns, for each set of selectors that selects no address any more, the last address that it selected', () => {
    const memberships = start([web]);
    const labels = { app: 'web' };
    list(memberships, PODS, [pod('a', { addresses: [X], labels }), pod('b', { addresses: [Y] })]);
    memberships.drainChanges();
    const set = memberships.setOf(X)?.number;
    expect(memberships.former().addresses).toHaveLength(0);
    memberships.receive('prod', PODS, { type: 'deleted', uid: 'a', version: 2 });
    memberships.drainChanges();
    expect(memberships.former()).toEqual({ addresses: [X], sets: Uint32Array.of(set ?? 0) });
    const again = pod('c', { addresses: [X], labels, version: 3 });
    memberships.receive('prod', PODS, { type: 'changed', object: again });
    memberships.drainChanges();
    expect(memberships.former().addresses).toHaveLength(0);
  });

  test('a set of selectors that selects no address any more keeps its number while fewer than `maxUnusedSets` sets are unused', () => {
    const memberships = start(SELECTORS);
    list(memberships, PODS, []);
    expect(change(memberships, 0, 2)[0]?.sets).toEqual(Uint32Array.of(1));
    expect(change(memberships, 1, 3)[0]?.sets).toEqual(Uint32Array.of(2));
    const [again] = change(memberships, 0, 4);
    expect(again).toMatchObject({ added: [], sets: Uint32Array.of(1), dropped: [] });
  });

  test('the numbers of sets of selectors that select no address any more are dropped in the order in which the sets fell out of use, and are never assigned again', () => {
    // A set with one selector counts as 2, so the limit of 4 keeps two unused sets.
    const memberships = start(SELECTORS, { maxUnusedSets: 4 });
    list(memberships, PODS, []);
    for (const index of [0, 1, 2]) expect(change(memberships, index, 2 + index)[0]?.dropped).toEqual([]);
    expect(change(memberships, 3, 5)[0]?.dropped).toEqual([1]);
    const [again] = change(memberships, 0, 6);
    expect(again).toMatchObject({ sets: Uint32Array.of(5), dropped: [2] });
    expect(again?.added.map(({ number, keys }) => [number, keys])).toEqual([[5, [labelled(0).key]]]);
  });
});

describe('the selector resolution', () => {
  const shop = scope('pods', 'shop');

  test('a Kubernetes selector is resolved when all objects on which it depends are listed', () => {
    const inShop = podSelector({ namespace: 'shop' });
    const blue = podSelector({ namespace_selector: {} });
    const nodes = nodeSelector({});
    const memberships = start([all, inShop, blue, nodes]);
    const resolved = () => shown(resolutionNow(memberships)).resolved;
    expect(resolved()).toEqual([]);
    list(memberships, shop, []);
    expect(resolved()).toEqual([inShop.key]);
    list(memberships, PODS, []);
    memberships.endScope('prod', shop);
    expect(resolved()).toEqual([all.key, inShop.key]);
    list(memberships, NAMESPACES, []);
    expect(resolved()).toEqual([all.key, inShop.key, blue.key]);
    list(memberships, NODES, []);
    expect(resolved()).toEqual([all.key, inShop.key, blue.key, nodes.key]);
    memberships.remove('prod');
    expect(resolved()).toEqual([]);
  });

  test('a Kubernetes selector is resolved only after `drainChanges` has returned its members', () => {
    const memberships = start([web]);
    list(memberships, PODS, [pod('a', { addresses: [X], labels: { app: 'web' } })]);
    expect([memberships.resolution.resolved.size, memberships.setOf(X), memberships.areResolvable([web])]).toEqual([
      0,
      undefined,
      true,
    ]);
    memberships.drainChanges();
    expect([[...memberships.resolution.resolved], memberships.setOf(X)?.keys]).toEqual([[web.key], [web.key]]);
  });

  test('a Kubernetes selector of pod networks is not resolved while selectors cannot be evaluated for a node', () => {
    const pool = nodeSelector({ match_labels: { pool: 'a' }, addresses: ['podCIDRs'] });
    const memberships = start([pool, nodeSelector({})]);
    list(memberships, NODES, [node('n', { undecided: true })]);
    expect([...resolutionNow(memberships).resolved]).toEqual([nodeSelector({}).key]);
    memberships.receive('prod', NODES, { type: 'changed', object: node('n', { version: 2 }) });
    expect(resolutionNow(memberships).resolved.size).toBe(2);
  });

  const nodes = [
    node('n1', { podNetworks: [network('10.1.0.0/24')], labels: { pool: 'a' } }),
    node('n2', { podNetworks: [network('10.0.0.0/24')] }),
  ];

  test('each pod network of the nodes that Kubernetes selectors select is listed once', () => {
    const pool = nodeSelector({ match_labels: { pool: 'a' }, addresses: ['podCIDRs', 'InternalIP'] });
    const all = nodeSelector({ addresses: ['podCIDRs'] });
    const memberships = start([pool, all]);
    list(memberships, NODES, nodes);
    resolutionNow(memberships);
    const page = (keys: readonly string[], after: number | null = null) =>
      membersOf(memberships, keys, { after, limit: 10 }).networks.map(({ prefix, owner }) => [
        formatPrefix(prefix),
        owner,
      ]);
    const ofNode = (name: string) => ({ integration: 'prod', kind: 'node', namespace: null, name });
    const first = ['10.1.0.0/24', ofNode('n1')];
    expect(page([pool.key])).toEqual([first]);
    expect(page([pool.key, all.key])).toEqual([['10.0.0.0/24', ofNode('n2')], first]);
    expect(page([pool.key], 0)).toEqual([]);
    expect(page([nodeSelector({}).key])).toEqual([]);
  });

  test('the status of a Kubernetes integration counts the pod networks that a selector selects, in addition to its addresses', () => {
    const pool = nodeSelector({ match_labels: { pool: 'a' }, addresses: ['podCIDRs'] });
    const all = nodeSelector({ addresses: ['podCIDRs'] });
    const memberships = start([pool, all]);
    list(memberships, NODES, nodes);
    resolutionNow(memberships);
    expect(factsOf('prod', memberships, [pool, all]).selectors).toEqual([
      { key: pool.key, resolved: true, addresses: 0, networks: 1 },
      { key: all.key, resolved: true, addresses: 0, networks: 2 },
    ]);
  });

  test('as soon as the pods of all namespaces are listed, addresses without a pod in the pod networks of nodes match no allow rule with selectors', () => {
    const memberships = start([web]);
    const podNetworks = () => shown(resolutionNow(memberships)).podNetworks;
    list(memberships, NODES, nodes);
    list(memberships, shop, []);
    expect(podNetworks()).toEqual([]);
    list(memberships, PODS, []);
    expect(podNetworks()).toEqual(['10.0.0.0/24', '10.1.0.0/24']);
    memberships.receive('prod', NODES, { type: 'deleted', uid: 'n2', version: 2 });
    expect(podNetworks()).toEqual(['10.1.0.0/24']);
  });

  test('addresses without a pod in the configured pod networks match no allow rule with selectors, unlike those in the networks of the nodes', () => {
    const memberships = start([web], { podNetworks: [network('10.0.0.0/8')] });
    list(memberships, NODES, nodes);
    expect(shown(resolutionNow(memberships)).podNetworks).toEqual([]);
    list(memberships, PODS, []);
    expect(shown(resolutionNow(memberships)).podNetworks).toEqual(['10.0.0.0/8']);
    list(memberships, scope('pods', 'shop'), [], 'test');
    expect(shown(resolutionNow(memberships)).podNetworks).toEqual([]);
  });

  test('if only the pods of one node are listed, addresses without a pod lose allow rules with selectors only in the pod networks of that node', () => {
    const memberships = start([web]);
    list(memberships, NODES, nodes);
    list(memberships, scope('pods', null, 'n1'), []);
    expect(shown(resolutionNow(memberships)).podNetworks).toEqual(['10.1.0.0/24']);
  });

  test('the resolution of Kubernetes selectors contains the pod networks that a selector of nodes asks for', () => {
    const pool = nodeSelector({ match_labels: { pool: 'a' }, addresses: ['podCIDRs'] });
    const memberships = start([pool, nodeSelector({})]);
    list(memberships, NODES, nodes);
    expect(shown(resolutionNow(memberships)).networks).toEqual([[pool.key, ['10.1.0.0/24']]]);
    const object = node('n2', { podNetworks: [network('10.0.0.0/24')], labels: { pool: 'a' }, version: 2 });
    memberships.receive('prod', NODES, { type: 'changed', object });
    expect(shown(resolutionNow(memberships)).networks).toEqual([[pool.key, ['10.0.0.0/24', '10.1.0.0/24']]]);
  });

  test('the resolution of Kubernetes selectors stays the same object while its contents are the same', () => {
    const memberships = start([web]);
    list(memberships, NODES, nodes);
    list(memberships, PODS, []);
    const before = resolutionNow(memberships);
    const object = node('n3', { podNetworks: [network('10.1.0.128/25')], version: 2 });
    memberships.receive('prod', NODES, { type: 'changed', object });
    list(memberships, PODS, [pod('a', { addresses: [X] })]);
    memberships.setSelectors([web]);
    expect(resolutionNow(memberships)).toBe(before);
  });
});

describe('lookups', () => {
  test('`Memberships` returns the addresses that a Kubernetes selector selects, and their number', () => {
    const nodes = nodeSelector({ addresses: ['ExternalIP'] });
    const memberships = start([web, all, nodes]);
    const labels = { app: 'web' };
    list(memberships, PODS, [pod('a', { addresses: [X], labels }), pod('b', { addresses: [Y] })]);
    list(memberships, NODES, [node('n', { internal: [ip('192.0.2.1')], external: [ip('198.51.100.1')] })]);
    memberships.drainChanges();
    expect([...memberships.membersOf(web.key)]).toEqual([X]);
    expect([...memberships.membersOf(nodes.key)]).toEqual([ip('198.51.100.1')]);
    expect(memberships.counts()).toEqual(
      new Map([
        [all.key, 2],
        [web.key, 1],
        [nodes.key, 1],
      ]),
    );
    expect(memberships.setOf(X)?.keys).toEqual([all.key, web.key].sort());
    expect(memberships.setOf(ip('10.9.9.9'))).toBeUndefined();
  });

  test('`Memberships` warns about pods in the network of their node, and about pod addresses that match allow rules before the pod is known', () => {
    const memberships = start([web]);
    const fields = { addresses: [X], labels: { app: 'web' }, hostNetwork: true };
    list(memberships, PODS, [pod('a', fields), pod('b', fields), pod('c', { addresses: [Y] })]);
    memberships.drainChanges();
    const skipped = { code: 'host_network_skipped', integration: 'prod', key: web.key, count: 2, first: 'shop/a' };
    expect(memberships.warnings('prod')).toEqual([skipped, { code: 'pods_not_closed', integration: 'prod' }]);
    list(memberships, NODES, [node('n', { podNetworks: [network('10.1.0.0/24')] })]);
    memberships.drainChanges();
    expect(memberships.warnings('prod')).toEqual([skipped]);
  });

  test('`Memberships` gives no Kubernetes object an address that it may not own, also for stored objects, and warns about that', () => {
    const own = ip('10.1.0.9');
    const options = { podNetworks: [network('10.1.0.0/16')], own: () => new Set([own]), nodeName: 'self' };
    const refused = ['10.2.0.1', '127.0.0.1', '0.0.0.1', '224.0.0.5', '255.255.255.255'].map(ip);
    const memberships = start([all, nodeSelector({})], options);
    const pods = [pod('a', { addresses: [...refused, own, X] }), pod('b', { addresses: [Y] })];
    const nodes = [
      node('other', { internal: [ip('192.0.2.1'), own, ip('127.0.0.2')] }),
      node('self', { internal: [own] }),
    ];
    list(memberships, PODS, pods);
    list(memberships, NODES, nodes);
    memberships.drainChanges();
    const owners = () =>
      [...refused, own, X, Y, ip('192.0.2.1')].map((address) => memberships.ownersOf(address)[0]?.object.name);
    const expected = [...refused.map(() => undefined), 'self', 'a', 'b', 'other'];
    expect(owners()).toEqual(expected);
    const first = { name: 'shop/a', address: refused[0] };
    const warning = { code: 'claims_refused', integration: 'prod', count: 8, first };
    expect(memberships.warnings('prod')).toContainEqual(warning);
    memberships.receive('prod', PODS, { type: 'deleted', uid: 'a', version: 2 });
    expect(memberships.ownersOf(X)).toEqual([]);

    const restored = start([all], options);
    const claims = (object: KubernetesObject, addresses: readonly Address[]) => {
      return { object, owned: addresses.map((address) => [address, 1, 1] as const) };
    };
    const stored = pods.map((object) => claims(object, object.addresses));
    restored.restore('prod', stored, [{ scope: PODS, version: 1 }]);
    expect([...refused, own, X].map((address) => restored.ownersOf(address).length)).toEqual([
      ...[...refused, own].map(() => 0),
      1,
    ]);
  });

  test('`Memberships` selects the addresses of both IP families of a dual-stack pod and node, and the pages of members list IPv4 first', () => {
    const nodes = nodeSelector({ addresses: ['InternalIP', 'podCIDRs'] });
    const memberships = start([web, nodes]);
    const [a, b, far] = [ipv6('fd00:10:244::5'), ipv6('fd00:10:244:1::5'), ipv6('fd00:10:244:1::6')];
    const labels = { app: 'web' };
    list(memberships, PODS, [pod('a', { addresses: [X, a], labels }), pod('b', { addresses: [b, Y], labels })]);
    list(memberships, NODES, [
      node('n', {
        internal: [ip('192.0.2.1'), ipv6('fd00::1')],
        podNetworks: [network('fd00:10:244::/56'), network('10.1.0.0/24'), network('fd00:10:244:1::/64')],
      }),
    ]);
    memberships.drainChanges();
    expect([X, a, b, Y].map((address) => memberships.setOf(address)?.keys)).toEqual([1, 2, 3, 4].map(() => [web.key]));
    expect(memberships.setOf(far)).toBeUndefined();
    expect(memberships.counts().get(web.key)).toBe(4);
    expect(shown(memberships.resolution)).toEqual({
      resolved: [web.key, nodes.key],
      podNetworks: ['10.1.0.0/24', 'fd00:10:244::/56'],
      networks: [[nodes.key, ['10.1.0.0/24', 'fd00:10:244::/56']]],
    });
    const page = (after: Address | null) =>
      membersOf(memberships, [web.key], { after, limit: 2 }).members.map(({ address, owner }) => [address, owner.name]);
    expect(page(null)).toEqual([
      [X, 'a'],
      [Y, 'b'],
    ]);
    expect(page(Y)).toEqual([
      [a, 'a'],
      [b, 'b'],
    ]);
    expect(page(b)).toEqual([]);
    // The pod a gets an address of b in its next status, and b is deleted.
    memberships.receive('prod', PODS, { type: 'changed', object: pod('a', { addresses: [X], labels, version: 2 }) });
    memberships.receive('prod', PODS, { type: 'deleted', uid: 'b', version: 3 });
    memberships.drainChanges();
    expect(memberships.list().addresses).toEqual([X, ip('192.0.2.1'), ipv6('fd00::1')]);
    expect([memberships.owners.get(a), memberships.owners.get(X)?.name]).toEqual([undefined, 'a']);
  });

  test('`Memberships` gives no object an IPv6 address that no pod can have, or that is outside of the configured networks of pods', () => {
    const own = ipv6('fd00:10:244::99');
    const podNetworks = [network('10.1.0.0/16'), network('fd00:10:244::/56')];
    const memberships = start([all], { podNetworks, own: () => new Set([own]) });
    const refused = ['::', '::1', 'fe80::5', 'ff02::1', '::ffff:10.1.0.7', 'fd00:10:245::5'].map(ipv6);
    list(memberships, PODS, [pod('a', { addresses: [...refused, own, ipv6('fd00:10:244::5')] })]);
    memberships.drainChanges();
    expect(memberships.list().addresses).toEqual([ipv6('fd00:10:244::5')]);
    const first = { name: 'shop/a', address: refused[0] };
    expect(memberships.warnings('prod')).toEqual([{ code: 'claims_refused', integration: 'prod', count: 7, first }]);
    const unlimited = start([all]);
    list(unlimited, PODS, [pod('a', { addresses: [...refused.slice(0, 5), ipv6('fd00::5')] })]);
    unlimited.drainChanges();
    expect(unlimited.list().addresses).toEqual([ipv6('fd00::5')]);
  });

  test('`Memberships` omits Kubernetes objects beyond the maximum number, and warns about that', () => {
    const memberships = start([all], { maxObjects: 1, podNetworks: [network('10.1.0.0/24')] });
    list(memberships, PODS, [pod('a', { addresses: [X] }), pod('b', { addresses: [Y] })]);
    memberships.drainChanges();
    expect([memberships.setOf(X)?.keys, memberships.setOf(Y)]).toEqual([[all.key], undefined]);
    expect(memberships.warnings('prod')).toEqual([{ code: 'objects_skipped', integration: 'prod', count: 1 }]);
  });
});

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

test('`Memberships` does not use more memory after a million changes', () => {
  const random = new Random(27);
  const selectors = Array.from({ length: 20 }, (_, index) => podSelector({ match_labels: { [`l${index}`]: 'x' } }));
  const memberships = start(selectors, { maxUnusedSets: 2_000 });
  list(memberships, PODS, []);
  // The labels give some thousand sets, more than may stay unused.
  const labelled = Array.from({ length: 5_000 }, (_, index) => {
    return pod(`${index}`, { labels: Object.fromEntries(random.some(0, 6, () => [`l${random.below(20)}`, 'x'])) });
  });
  const base = pod('base');
  const live: string[] = [];
  let version = 1;
  const run = (changes: number) => {
    for (let change = 0; change < changes; change++) {
      version++;
      if (live.length > 500) {
        const uid = live.splice(random.below(live.length), 1)[0] ?? '';
        memberships.receive('prod', PODS, { type: 'deleted', uid, version });
      } else {
        const { labels } = random.pick(labelled);
        const object = { ...base, uid: `pod-${version}`, labels, addresses: [random.word()], version };
        live.push(object.uid);
        memberships.receive('prod', PODS, { type: 'changed', object });
      }
      if (change % 50 > 0) continue;
      memberships.drainChanges();
      memberships.owners.drainChanges();
    }
    memberships.drainChanges();
    memberships.owners.drainChanges();
    collectGarbage();
    return process.memoryUsage().heapUsed;
  };
  const first = run(200_000);
  const second = run(800_000);
  expect(second - first).toBeLessThan(4 * 1024 * 1024);
  expect(memberships.list().added.length).toBeLessThan(3_000);
});
