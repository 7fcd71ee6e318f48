import { describe, expect, test } from 'vitest';
import { formatAddress } from '#addresses/ip-address.js';
import { Memberships } from '#kubernetes/members/memberships.js';
import { Feeds } from '#kubernetes/watch/feeds.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { ip, namespace, pod, podSelector, scope } from './sample.js';

const PODS = scope('pods');
const SHOP = scope('pods', 'shop');
const BANK = scope('pods', 'bank');
const NAMESPACES = scope('namespaces');
const NODES = scope('nodes');
const at = (name: string, address: string, version: number) => pod(name, { addresses: [ip(address)], version });

/** An integration with a selector of all pods. `members` returns their addresses. */
class Prod {
  readonly memberships = new Memberships();
  cluster = 'a';
  readonly #feeds = new Feeds('prod', this.memberships);

  constructor() {
    this.memberships.setSelectors([podSelector({})]);
  }

  begin(feed: number, ...scopes: readonly WatchScope[]): void {
    this.keep(feed, [], ...scopes);
  }

  /** Begins a feed. The watches of its first scopes were begun by the feeds with the numbers in `kept`. */
  keep(feed: number, kept: readonly number[], ...scopes: readonly WatchScope[]): void {
    const going = kept.flatMap((of, index) => ({ scope: scopes[index] as WatchScope, of }));
    this.#feeds.handle({ type: 'begun', feed, cluster: this.cluster, scopes, kept: going });
  }

  list(feed: number, scope: WatchScope, version: number, ...objects: readonly KubernetesObject[]): void {
    this.#feeds.handle({ type: 'objects', feed, scope, message: { type: 'listed', objects, version } });
  }

  change(feed: number, scope: WatchScope, object: KubernetesObject): void {
    this.#feeds.handle({ type: 'objects', feed, scope, message: { type: 'changed', object } });
  }

  remove(feed: number, scope: WatchScope, uid: string, version: number): void {
    this.#feeds.handle({ type: 'objects', feed, scope, message: { type: 'deleted', uid, version } });
  }

  get members(): readonly string[] {
    this.memberships.drainChanges();
    return [...this.memberships.membersOf(podSelector({}).key)].map(formatAddress);
  }
}

describe('a feed', () => {
  test('a Kubernetes feed (the lists and watches of an integration) takes effect when each of its watch scopes has a list', () => {
    const prod = new Prod();
    prod.begin(1, PODS, NAMESPACES);
    prod.list(1, PODS, 5, at('a', '10.0.0.1', 3), at('b', '10.0.0.2', 4));
    prod.change(1, PODS, at('c', '10.0.0.3', 6));
    prod.remove(1, PODS, 'a', 7);
    expect([prod.members, prod.memberships.resolution.resolved.size]).toEqual([[], 0]);
    prod.list(1, NAMESPACES, 8, namespace('shop'));
    expect([prod.members, prod.memberships.resolution.resolved.size]).toEqual([['10.0.0.2', '10.0.0.3'], 1]);
  });

  test('a new Kubernetes feed (the lists and watches of an integration) keeps the objects of watch scopes that the feed in effect has too', () => {
    const prod = new Prod();
    prod.begin(1, SHOP);
    prod.list(1, SHOP, 5, at('a', '10.0.0.1', 3));
    prod.keep(2, [1], SHOP, BANK);
    prod.change(1, SHOP, at('b', '10.0.0.2', 6));
    expect(prod.members).toEqual(['10.0.0.1', '10.0.0.2']);
    prod.list(2, BANK, 8, { ...at('c', '10.0.0.3', 7), namespace: 'bank' });
    expect(prod.members).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3']);
    prod.change(2, SHOP, at('d', '10.0.0.4', 9));
    expect(prod.members).toHaveLength(4);
    prod.keep(3, [2], BANK);
    expect(prod.members).toEqual(['10.0.0.3']);
  });

  /** Returns a cluster with one pod, whose next feed of pods and namespaces has begun. */
  function withNextFeed(): Prod {
    const prod = new Prod();
    prod.begin(1, PODS);
    prod.list(1, PODS, 5, at('a', '10.0.0.1', 3));
    prod.begin(2, PODS, NAMESPACES);
    return prod;
  }

  test('a new Kubernetes feed (the lists and watches of an integration) keeps the lists of watch scopes that an incomplete feed has too', () => {
    // Other credentials, so that PODS is listed again.
    const prod = withNextFeed();
    prod.list(2, PODS, 6, at('b', '10.0.0.2', 6));
    prod.keep(3, [2, 2], PODS, NAMESPACES, NODES);
    prod.change(3, PODS, at('c', '10.0.0.3', 7));
    prod.list(3, NAMESPACES, 8, namespace('shop'));
    expect(prod.members).toEqual(['10.0.0.1']);
    prod.list(3, NODES, 8);
    expect(prod.members).toEqual(['10.0.0.2', '10.0.0.3']);
  });

  test('a Kubernetes feed with the same watch scopes as the feed in effect takes effect at once, and ends an incomplete feed', () => {
    const prod = withNextFeed();
    prod.list(2, PODS, 6, at('b', '10.0.0.2', 6));
    prod.keep(3, [1], PODS);
    prod.list(2, NAMESPACES, 8, namespace('shop'));
    expect(prod.members).toEqual(['10.0.0.1']);
    prod.change(3, PODS, at('c', '10.0.0.3', 9));
    expect(prod.members).toEqual(['10.0.0.1', '10.0.0.3']);
  });

  test('a Kubernetes feed (the lists and watches of an integration) stays in effect and is updated until the next feed is complete', () => {
    const prod = withNextFeed();
    // Another server: other objects, and lower versions.
    prod.list(2, PODS, 2, at('x', '10.0.0.9', 1));
    prod.change(1, PODS, at('b', '10.0.0.2', 6));
    expect(prod.members).toEqual(['10.0.0.1', '10.0.0.2']);
    prod.list(2, NAMESPACES, 2);
    expect(prod.members).toEqual(['10.0.0.9']);
    prod.change(1, PODS, at('c', '10.0.0.3', 7));
    expect(prod.members).toEqual(['10.0.0.9']);
  });

  test('a complete Kubernetes feed ends the watch scopes that only the former feed has, and keeps the objects that both feeds have', () => {
    const prod = new Prod();
    prod.begin(1, SHOP);
    prod.list(1, SHOP, 5, at('a', '10.0.0.1', 3));
    prod.begin(2, PODS);
    const owner = prod.memberships.ownersOf(ip('10.0.0.1'));
    prod.list(2, PODS, 6, at('a', '10.0.0.1', 3), at('b', '10.0.0.2', 4));
    expect([owner.length, prod.members]).toEqual([1, ['10.0.0.1', '10.0.0.2']]);
    prod.begin(3);
    expect(prod.members).toEqual([]);
  });

  test('the objects in a feed of another Kubernetes cluster are not compared with the versions and claims of the former cluster', () => {
    const prod = new Prod();
    prod.begin(1, PODS);
    const copied = at('copied', '10.0.0.1', 900);
    prod.list(1, PODS, 1_000, copied, { ...at('old', '10.0.0.2', 950), started: 9 });
    prod.cluster = 'b';
    prod.begin(2, PODS);
    prod.change(1, PODS, at('c', '10.0.0.3', 1_001));
    expect(prod.members).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3']);
    // The other cluster is ahead, and has a copied object with an older version.
    prod.list(2, PODS, 2_000, { ...copied, addresses: [ip('10.0.0.4')], version: 800 }, at('new', '10.0.0.2', 700));
    expect(prod.members).toEqual(['10.0.0.2', '10.0.0.4']);
    const owner = ([owned]: ReturnType<Memberships['ownersOf']>) => owned?.object.name;
    expect(owner(prod.memberships.ownersOf(ip('10.0.0.2')))).toBe('new');
  });

  test('a Kubernetes feed (the lists and watches of an integration) that is replaced before it is complete never takes effect', () => {
    const prod = new Prod();
    prod.begin(1, PODS, NAMESPACES);
    prod.list(1, PODS, 5, at('a', '10.0.0.1', 3));
    prod.begin(2, PODS);
    prod.list(1, NAMESPACES, 6);
    prod.list(1, PODS, 6, at('a', '10.0.0.1', 3));
    expect(prod.members).toEqual([]);
    prod.list(2, PODS, 7, at('b', '10.0.0.2', 4));
    expect(prod.members).toEqual(['10.0.0.2']);
  });
});
