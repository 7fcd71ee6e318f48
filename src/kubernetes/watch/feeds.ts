import type { CompleteScope, OwningObject } from '#kubernetes/members/integration-objects.js';
import type { Memberships } from '#kubernetes/members/memberships.js';
import type { KubernetesObject, ObjectMessage } from './objects.js';
import { isSameWatchScope, type WatchScope } from './watch-scopes.js';

/**
 * The events of a feed, which is the lists and watches of some scopes of one server. `begun`: the feed starts
 * its lists. It takes the scopes in `kept` from an earlier feed, with the number `of`, without a new list.
 * `objects`: a scope of the feed has received objects. Versions are comparable only between feeds with the
 * same `cluster`.
 */
export type FeedEvent =
  | {
      readonly type: 'begun';
      readonly feed: number;
      readonly cluster: string;
      readonly scopes: readonly WatchScope[];
      readonly kept: readonly { readonly scope: WatchScope; readonly of: number }[];
    }
  | { readonly type: 'objects'; readonly feed: number; readonly scope: WatchScope; readonly message: ObjectMessage };

/** The objects of a watch scope while lists of its feed are missing. `version`: undefined until its list. */
type WaitingScope = { readonly scope: WatchScope; version: number | undefined; objects: Map<string, KubernetesObject> };

/**
 * `waiting`: the watch scopes (objects of one list and watch) of this feed that the feed in effect does not
 * contain.
 */
type NextFeed = {
  readonly feed: number;
  readonly cluster: string;
  readonly scopes: readonly WatchScope[];
  readonly waiting: readonly WaitingScope[];
};

/**
 * Passes the objects of an integration to `Memberships`. A new feed (lists and watches of one server) takes
 * effect when each of its scopes has a list. Until then, the previous feed continues and stays in effect, so
 * two feeds are in memory.
 */
export class Feeds {
  readonly #integration: string;
  readonly #memberships: Memberships;
  #current: { readonly feed: number; readonly cluster: string; readonly scopes: readonly WatchScope[] } | undefined;
  #next: NextFeed | undefined;

  constructor(integration: string, memberships: Memberships) {
    this.#integration = integration;
    this.#memberships = memberships;
  }

  /**
   * The cluster whose objects are in effect; undefined before the first complete feed (lists of one server).
   */
  get cluster(): string | undefined {
    return this.#current?.cluster;
  }

  /**
   * Restores the objects that an earlier process stored, as the objects of a complete feed (lists of one
   * server). Call this method before all others.
   */
  restore(cluster: string, objects: readonly OwningObject[], complete: readonly CompleteScope[]): void {
    this.#memberships.restore(this.#integration, objects, complete);
    this.#current = { feed: 0, cluster, scopes: complete.map(({ scope }) => scope) };
  }

  /**
   * Handles an event. An event of a feed (lists and watches of one server) that was replaced has no effect.
   */
  handle(event: FeedEvent): void {
    const { feed } = event;
    if (event.type === 'begun') {
      const { scopes, kept } = event;
      const waiting = scopes.flatMap((scope): readonly WaitingScope[] => {
        const of = kept.find((other) => isSameWatchScope(scope, other.scope))?.of;
        if (of === undefined) return [{ scope, version: undefined, objects: new Map() }];
        // `#memberships` already contains the objects of the feed (lists and watches of one server) in
        // effect, so they need no copy.
        if (of === this.#current?.feed) return [];
        return this.#next?.waiting.filter((candidate) => isSameWatchScope(candidate.scope, scope)) ?? [];
      });
      this.#next = { feed, cluster: event.cluster, scopes, waiting };
      this.#completeNext();
      return;
    }
    const { scope } = event;
    if (feed === this.#current?.feed) this.#memberships.receive(this.#integration, scope, event.message);
    else if (feed === this.#next?.feed) {
      const waiting = this.#next.waiting.find((candidate) => isSameWatchScope(candidate.scope, scope));
      if (waiting !== undefined) applyToWaiting(waiting, event.message);
      this.#completeNext();
    }
  }

  #completeNext(): void {
    const next = this.#next;
    if (next === undefined) return;
    const lists: {
      readonly scope: WatchScope;
      readonly version: number;
      readonly objects: readonly KubernetesObject[];
    }[] = [];
    for (const { scope, version, objects } of next.waiting) {
      if (version === undefined) return;
      lists.push({ scope, version, objects: [...objects.values()] });
    }
    const { feed, cluster, scopes } = next;
    const before = this.#current?.cluster === cluster ? this.#current.scopes : [];
    // Remove the objects and claims of the previous cluster, because versions of different clusters are not
    // comparable.
    if (this.#current !== undefined && this.#current.cluster !== cluster) this.#memberships.clear(this.#integration);
    for (const { scope, version, objects } of lists) {
      this.#memberships.receive(this.#integration, scope, { type: 'listed', objects, version });
    }
    for (const scope of before) {
      if (!scopes.some((other) => isSameWatchScope(other, scope))) this.#memberships.endScope(this.#integration, scope);
    }
    this.#current = { feed, cluster, scopes };
    this.#next = undefined;
  }
}

/** Applies a message to the objects of a watch scope whose feed (lists of one server) is not complete. */
function applyToWaiting(waiting: WaitingScope, message: ObjectMessage): void {
  if (message.type === 'listed') {
    waiting.version = message.version;
    waiting.objects = new Map(message.objects.map((object) => [object.uid, object]));
    return;
  }
  if (waiting.version === undefined) return;
  const version = message.type === 'changed' ? message.object.version : message.version;
  waiting.version = Math.max(waiting.version, version);
  if (message.type === 'changed') waiting.objects.set(message.object.uid, message.object);
  else waiting.objects.delete(message.uid);
}
