import { Observable, Subject, type Subscriber, Subscription } from 'rxjs';
import type { ReflectorPhase } from '#contracts/kubernetes/kubernetes-source.js';
import type { ApiServer } from '#kubernetes/api-server/api-session.js';
import type { ObjectMessage } from './objects.js';
import {
  type PhaseMessage,
  REFLECTOR_TIMES,
  type ReflectorOptions,
  type ReflectorTimes,
  reflect,
} from './reflector.js';
import { nameOf, type WantedObjects, type WatchScope, watchScopesOf } from './watch-scopes.js';

/** This file watches the objects of one API server, and starts and ends the reflectors that it needs. */

/**
 * An API server and the objects that are needed of it. Targets with an equal `serverKey` have the same server
 * and credentials. Targets with an equal `cluster` have comparable versions.
 */
export type IntegrationTarget = {
  readonly server: ApiServer;
  readonly serverKey: string;
  readonly cluster: string;
  readonly wanted: WantedObjects;
};

/** Returns the parts of an object that Weir needs; undefined to ignore the object. Must not throw. */
export type KeepOf<Kept> = (resource: WatchScope['resource']) => ReflectorOptions<Kept>['keep'];

/**
 * `of`: the number of the feed (lists and watches of one server) from which the reflector is taken: the feed
 * in force, or the incomplete feed that the new feed replaces.
 */
type KeptScope = { readonly scope: WatchScope; readonly of: number };

export type IntegrationEvent<Kept> =
  /**
   * A new feed (lists and watches of one server) begins, with a reflector for each of `scopes`. The feed in
   * force stays in force until each scope has a list. An incomplete feed ends. `kept`: the scopes whose
   * reflectors continue without a new list.
   */
  | {
      readonly type: 'begun';
      readonly feed: number;
      readonly cluster: string;
      readonly scopes: readonly WatchScope[];
      readonly kept: readonly KeptScope[];
    }
  /**
   * A reflector (list and watch of one resource) has received objects. `feed`: the feed in force if it
   * contains the reflector, otherwise the next feed.
   */
  | {
      readonly type: 'objects';
      readonly feed: number;
      readonly scope: WatchScope;
      readonly message: ObjectMessage<Kept>;
    }
  /**
   * A reflector (list and watch of one resource) of the newest feed entered a phase. `phase`: null if the
   * newest feed no longer contains the reflector. `at`: ISO 8601.
   */
  | {
      readonly type: 'reflector.changed';
      readonly name: string;
      readonly phase: ReflectorPhase | null;
      readonly reason: string | null;
      readonly at: string;
    };

/**
 * Watches the objects of an integration, with one reflector for each scope. A target with other scopes or
 * another server begins a new feed. If the server is the same, the new feed keeps the running reflectors of
 * its scopes. The previous feed ends when each scope of the new feed has a list, so that no object is missing
 * in between. The observable fails only because of a bug.
 */
export function watchIntegration<Kept>(
  targets: Observable<IntegrationTarget>,
  keepOf: KeepOf<Kept>,
  times: ReflectorTimes = REFLECTOR_TIMES,
): Observable<IntegrationEvent<Kept>> {
  return new Observable((subscriber) => {
    const watch = new IntegrationWatch<Kept>(keepOf, times, subscriber);
    subscriber.add(() => watch.end());
    subscriber.add(
      targets.subscribe({
        next: (target) => watch.retarget(target),
        error: (failure: unknown) => subscriber.error(failure),
      }),
    );
  });
}

/** A running reflector (list and watch of one resource), which belongs to one or two feeds. */
type RunningReflector = {
  readonly name: string;
  readonly scope: WatchScope;
  readonly subscription: Subscription;
  isListed: boolean;
  /** The last phase; null before the first one. */
  phase: PhaseMessage | null;
};

/**
 * The reflectors of one server. `key`: the server. `reflectors`: by the name of the watch scope (objects of
 * one list and watch).
 */
type Feed = {
  readonly number: number;
  readonly key: string;
  readonly reflectors: ReadonlyMap<string, RunningReflector>;
};

class IntegrationWatch<Kept> {
  readonly #keepOf: KeepOf<Kept>;
  readonly #times: ReflectorTimes;
  readonly #subscriber: Subscriber<IntegrationEvent<Kept>>;
  /** The feed (lists and watches of one server) whose objects are in force. */
  #current: Feed | null = null;
  /** A feed whose lists are not complete yet. */
  #next: Feed | null = null;
  #feeds = 0;
  readonly #restored = new Subject<unknown>();

  constructor(keepOf: KeepOf<Kept>, times: ReflectorTimes, subscriber: Subscriber<IntegrationEvent<Kept>>) {
    this.#keepOf = keepOf;
    this.#times = times;
    this.#subscriber = subscriber;
  }

  end(): void {
    for (const { subscription } of this.#running()) subscription.unsubscribe();
  }

  retarget({ server, serverKey, cluster, wanted }: IntegrationTarget): void {
    const scopes = watchScopesOf(wanted);
    const key = JSON.stringify([serverKey, cluster]);
    const newest = this.#newest();
    if (newest?.key === key && hasScopes(newest, scopes)) return;
    const before = this.#running();
    const feedsOfServer = [this.#current, this.#next].filter((feed) => feed?.key === key);
    const kept: KeptScope[] = [];
    const added: RunningReflector[] = [];
    const reflectors = new Map<string, RunningReflector>();
    for (const scope of scopes) {
      const name = nameOf(scope);
      const feed = feedsOfServer.find((each) => each?.reflectors.has(name));
      const reflector = feed?.reflectors.get(name) ?? newReflector(scope);
      reflectors.set(name, reflector);
      if (feed == null) added.push(reflector);
      else kept.push({ scope, of: feed.number });
    }
    const feed = { number: ++this.#feeds, key, reflectors };
    this.#next = feed;
    this.#subscriber.next({ type: 'begun', feed: feed.number, cluster, scopes, kept });
    this.#reportMoved(newest, feed);
    this.#completeNext(before);
    for (const reflector of added) this.#start(reflector, server);
  }

  #start(reflector: RunningReflector, server: ApiServer): void {
    const { scope, subscription } = reflector;
    subscription.add(
      reflect({
        server,
        scope,
        keep: this.#keepOf(scope.resource),
        times: this.#times,
        restored: this.#restored,
      }).subscribe({
        next: (message) => this.#handle(reflector, message),
        error: (failure: unknown) => this.#subscriber.error(failure),
      }),
    );
  }

  #handle(reflector: RunningReflector, message: ObjectMessage<Kept> | PhaseMessage): void {
    const { name, scope } = reflector;
    if (message.type === 'phase') {
      reflector.phase = message;
      if (this.#newest()?.reflectors.get(name) === reflector) this.#report(name, message);
      return;
    }
    const feed = [this.#current, this.#next].find((each) => each?.reflectors.get(name) === reflector);
    if (feed == null) return;
    this.#subscriber.next({ type: 'objects', feed: feed.number, scope, message });
    if (message.type !== 'listed') return;
    reflector.isListed = true;
    this.#completeNext(this.#running());
  }

  /**
   * Puts the next feed in force if it is complete. Ends the reflectors (list and watch of one resource) in
   * `before` that belong to no feed any more.
   */
  #completeNext(before: ReadonlySet<RunningReflector>): void {
    if (this.#next !== null && [...this.#next.reflectors.values()].every(({ isListed }) => isListed)) {
      this.#current = this.#next;
      this.#next = null;
    }
    const needed = this.#running();
    for (const reflector of before) if (!needed.has(reflector)) reflector.subscription.unsubscribe();
  }

  #newest(): Feed | null {
    return this.#next ?? this.#current;
  }

  #running(): ReadonlySet<RunningReflector> {
    return new Set([this.#current, this.#next].flatMap((feed) => [...(feed?.reflectors.values() ?? [])]));
  }

  /**
   * Reports the reflectors (list and watch of one resource) that only one of two feeds contains, when the
   * newest feed changes from `from` to `to`.
   */
  #reportMoved(from: Feed | null, to: Feed): void {
    for (const [name, reflector] of from?.reflectors ?? [])
      if (to.reflectors.get(name) !== reflector) this.#report(name, null);
    for (const [name, reflector] of to.reflectors)
      if (from?.reflectors.get(name) !== reflector && reflector.phase !== null) this.#report(name, reflector.phase);
  }

  #report(name: string, message: PhaseMessage | null): void {
    const { phase = null, reason = null } = message ?? {};
    this.#subscriber.next({ type: 'reflector.changed', name, phase, reason, at: new Date().toISOString() });
  }
}

function newReflector(scope: WatchScope): RunningReflector {
  return { name: nameOf(scope), scope, subscription: new Subscription(), isListed: false, phase: null };
}

function hasScopes({ reflectors }: Feed, scopes: readonly WatchScope[]): boolean {
  return scopes.length === reflectors.size && scopes.every((scope) => reflectors.has(nameOf(scope)));
}
