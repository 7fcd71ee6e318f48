import { Observable, type Subscriber, Subscription } from 'rxjs';
import type { ReflectorPhase } from '#contracts/reflector-state.js';
import type { ApiServer } from './api-client.js';
import {
  type ObjectMessage,
  type PhaseMessage,
  REFLECTOR_TIMES,
  type ReflectorOptions,
  type ReflectorTimes,
  reflect,
} from './reflector.js';
import { nameOf, type Scope, scopesOf, type Wanted } from './scopes.js';

/**
 * An API server and the objects that are needed of it. Equal `serverKey`: the same server and credentials.
 * Equal `cluster`: the same cluster, so that versions can be compared.
 */
export type IntegrationTarget = {
  readonly server: ApiServer;
  readonly serverKey: string;
  readonly cluster: string;
  readonly wanted: Wanted;
};

/** Returns the parts of an object that Weir needs; undefined to ignore the object. Must not throw. */
export type KeepOf<Kept> = (kind: Scope['kind']) => ReflectorOptions<Kept>['keep'];

export type IntegrationEvent<Kept> =
  /**
   * A feed begins: the reflectors of these scopes. The feed before stays in force until each scope has a
   * list.
   */
  | { readonly type: 'begun'; readonly feed: number; readonly cluster: string; readonly scopes: readonly Scope[] }
  /** The feed before stays in force, and this feed ends. */
  | { readonly type: 'dropped'; readonly feed: number }
  | { readonly type: 'objects'; readonly feed: number; readonly scope: Scope; readonly message: ObjectMessage<Kept> }
  /**
   * A reflector of the newest feed entered a phase; null if the newest feed does not have it. `at`: ISO 8601.
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
 * another server begins a new feed with new lists. The feed before ends when each scope of the new feed has a
 * list, so that no object is missing in between. A target with the scopes of the feed in force drops the feed
 * that is not complete. An error of the result is a bug.
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

type Feed = {
  readonly number: number;
  /** The server and the scopes. */
  readonly key: string;
  readonly subscription: Subscription;
  /** The names of the scopes that have no list yet. */
  readonly unlisted: Set<string>;
  /** The last phase of each reflector, by the name of its scope. */
  readonly phases: Map<string, PhaseMessage | null>;
};

class IntegrationWatch<Kept> {
  readonly #keepOf: KeepOf<Kept>;
  readonly #times: ReflectorTimes;
  readonly #subscriber: Subscriber<IntegrationEvent<Kept>>;
  /** The feed in force. */
  #current: Feed | null = null;
  /** A feed that is not complete yet. */
  #next: Feed | null = null;
  #feeds = 0;

  constructor(keepOf: KeepOf<Kept>, times: ReflectorTimes, subscriber: Subscriber<IntegrationEvent<Kept>>) {
    this.#keepOf = keepOf;
    this.#times = times;
    this.#subscriber = subscriber;
  }

  end(): void {
    this.#current?.subscription.unsubscribe();
    this.#next?.subscription.unsubscribe();
  }

  retarget({ server, serverKey, cluster, wanted }: IntegrationTarget): void {
    const scopes = scopesOf(wanted);
    const key = JSON.stringify([serverKey, cluster, scopes.map(nameOf)]);
    const newest = this.#next ?? this.#current;
    if (newest?.key === key) return;
    for (const name of newest?.phases.keys() ?? []) this.#report(name, null);
    this.#next?.subscription.unsubscribe();
    if (this.#next !== null && this.#current?.key === key) this.#drop(this.#next, this.#current);
    else this.#begin(key, { server, cluster, scopes });
  }

  #drop(next: Feed, current: Feed): void {
    this.#next = null;
    this.#subscriber.next({ type: 'dropped', feed: next.number });
    for (const [name, message] of current.phases) if (message !== null) this.#report(name, message);
  }

  #begin(
    key: string,
    { server, cluster, scopes }: Pick<IntegrationTarget, 'server' | 'cluster'> & { readonly scopes: readonly Scope[] },
  ): void {
    const names = scopes.map(nameOf);
    const feed: Feed = {
      number: ++this.#feeds,
      key,
      subscription: new Subscription(),
      unlisted: new Set(names),
      phases: new Map(names.map((name) => [name, null])),
    };
    this.#next = feed;
    this.#subscriber.next({ type: 'begun', feed: feed.number, cluster, scopes });
    this.#completeNext();
    for (const scope of scopes) {
      const keep = this.#keepOf(scope.kind);
      feed.subscription.add(
        reflect({ server, scope, keep, times: this.#times }).subscribe({
          next: (message) => this.#take(feed, scope, message),
          error: (failure: unknown) => this.#subscriber.error(failure),
        }),
      );
    }
  }

  #take(feed: Feed, scope: Scope, message: ObjectMessage<Kept> | PhaseMessage): void {
    const name = nameOf(scope);
    if (message.type === 'phase') {
      feed.phases.set(name, message);
      if (feed === (this.#next ?? this.#current)) this.#report(name, message);
      return;
    }
    this.#subscriber.next({ type: 'objects', feed: feed.number, scope, message });
    if (message.type === 'listed' && feed.unlisted.delete(name)) this.#completeNext();
  }

  #completeNext(): void {
    if (this.#next === null || this.#next.unlisted.size > 0) return;
    this.#current?.subscription.unsubscribe();
    this.#current = this.#next;
    this.#next = null;
  }

  #report(name: string, message: PhaseMessage | null): void {
    const { phase = null, reason = null } = message ?? {};
    this.#subscriber.next({ type: 'reflector.changed', name, phase, reason, at: new Date().toISOString() });
  }
}
