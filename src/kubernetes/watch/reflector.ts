import { setTimeout as pause } from 'node:timers/promises';
import { Observable, type Subject, type Subscriber } from 'rxjs';
import { backoffMs } from '#contracts/backoff.js';
import type { ReflectorPhase } from '#contracts/kubernetes/kubernetes-source.js';
import { ApiFault } from '#kubernetes/api-server/api-fault.js';
import { type ListPage, listPageOf, watchEventOf } from '#kubernetes/api-server/api-objects.js';
import { type ApiServer, ApiSession, type Deadlines } from '#kubernetes/api-server/api-session.js';
import type { ObjectMessage } from './objects.js';
import { fieldSelectorOf, pathOf, type WatchScope } from './watch-scopes.js';

/** A reflector lists the objects of one watch scope, and then watches them for changes. */

/** The time limits of a reflector (list and watch). Tests shorten them. */
export type ReflectorTimes = Deadlines & {
  /** The maximum duration of a watch in seconds. Many proxies end a request after five minutes. */
  readonly watchSeconds: number;
  /** If a watch ends this many milliseconds or more after the last list, the reflector lists again. */
  readonly relistMs: number;
  /** If a watch has lasted for this many milliseconds, the wait before the next connection is short again. */
  readonly livedMs: number;
  readonly firstBackoffMs: number;
  readonly mostBackoffMs: number;
};

export const REFLECTOR_TIMES: ReflectorTimes = {
  headersMs: 10_000,
  bodyMs: 60_000,
  // Together with `headersMs`, this detects a server that does not respond within 90 seconds.
  silenceMs: 75_000,
  watchSeconds: 290,
  relistMs: 30 * 60_000,
  livedMs: 10_000,
  firstBackoffMs: 200,
  mostBackoffMs: 30_000,
};

export type ReflectorOptions<Kept> = {
  readonly server: ApiServer;
  readonly scope: WatchScope;
  /** Returns the parts of an object that Weir needs; undefined to ignore the object. Must not throw. */
  readonly keep: (object: unknown) => Kept | undefined;
  readonly times?: ReflectorTimes;
  readonly bounds?: ListBounds;
  /**
   * Emits a reflector that has detected an older version on the server than before. All other reflectors with
   * this subject then list again.
   */
  readonly restored?: Subject<unknown> | undefined;
};

/**
 * The limits of one list. A server exceeds them if it sends an endless number of pages, or has more objects
 * than Weir supports.
 */
export type ListBounds = { readonly objects: number; readonly characters: number };

/** Kubernetes supports 150,000 pods. A pod has some 7 kB. */
const LIST_BOUNDS: ListBounds = { objects: 200_000, characters: 4 * 1024 ** 3 };

/** `reason`: the message of the server, or the reason of the failure; null if there was no failure. */
export type PhaseMessage = { readonly type: 'phase'; readonly phase: ReflectorPhase; readonly reason: string | null };

/**
 * After this number of successive lists whose `continue` token expired, the next list is requested without
 * pages.
 */
const MOST_EXPIRED_LISTS = 2;
/**
 * With this number of objects, a page of pods has less than a megabyte, so V8 frees its objects in the young
 * generation.
 */
const FIRST_PAGE_SIZE = 100;
/**
 * A watch lasts a random part of `watchSeconds`, at least this part, so that the watches of many nodes do not
 * end at the same time.
 */
const SHORTEST_WATCH = 0.8;

/**
 * Lists the objects of a scope, and then watches for changes. Keeps no objects. Tries again after each
 * failure. The observable never completes, and fails only because of a bug.
 */
export function reflect<Kept>(options: ReflectorOptions<Kept>): Observable<ObjectMessage<Kept> | PhaseMessage> {
  return new Observable((subscriber) => {
    const abort = new AbortController();
    new Reflector(options, abort.signal, subscriber).run().catch((failure: unknown) => subscriber.error(failure));
    return () => abort.abort();
  });
}

const MISSING = 'the watch does not send the changes that lists show';

class Reflector<Kept> {
  readonly #options: ReflectorOptions<Kept>;
  readonly #signal: AbortSignal;
  readonly #subscriber: Subscriber<ObjectMessage<Kept> | PhaseMessage>;
  readonly #times: ReflectorTimes;
  readonly #path: string;
  readonly #fieldSelector: string | undefined;
  #phase: ReflectorPhase | null = null;
  #reason: string | null = null;
  /** The version from which the next watch begins; null if the next step is a list. */
  #version: number | null = null;
  #listedAt = 0;
  #pageSize = FIRST_PAGE_SIZE;
  #watchBegan: number | null = null;
  /** The highest resource version that was received, and the number of objects at that version. */
  #newest = 0;
  #count = 0;
  /** The highest version of an object in the last list. */
  #lastChange = 0;
  /** The value of `performance.now()` when the last list was complete or the last line of a watch arrived. */
  #heardAt = 0;
  /**
   * Whether the last list contained changes that the watch had not sent. Reset by the next line of a watch.
   */
  #isMissing = false;
  /** The number of successive lists whose `continue` token expired. */
  #expiredLists = 0;
  #session: ApiSession | null = null;

  constructor(
    options: ReflectorOptions<Kept>,
    signal: AbortSignal,
    subscriber: Subscriber<ObjectMessage<Kept> | PhaseMessage>,
  ) {
    this.#options = options;
    this.#signal = signal;
    this.#subscriber = subscriber;
    this.#times = options.times ?? REFLECTOR_TIMES;
    this.#path = pathOf(options.scope);
    this.#fieldSelector = fieldSelectorOf(options.scope);
  }

  async run(): Promise<void> {
    const restored = this.#options.restored?.subscribe((by) => {
      if (by !== this)
        this.#begin(new ApiFault('expired', 'another watch detected that the server returned to an older version'));
    });
    this.#signal.addEventListener('abort', () => restored?.unsubscribe(), { once: true });
    this.#enter('connecting', null);
    for (let failures = 0; !this.#signal.aborted; ) {
      this.#watchBegan = null;
      const fault = await this.#connect();
      if (this.#signal.aborted) return;
      failures = this.#hasLived() ? 0 : failures + 1;
      if (fault !== null) this.#handleFault(fault);
      else if (failures > 0) this.#enter('backing_off', 'the server ended the watch at once');
      await pause(this.#waitMs(failures, fault), undefined, { signal: this.#signal }).catch(() => {});
    }
  }

  /**
   * Lists if necessary, and then watches until the watch ends. Returns the fault that ended the connection.
   */
  async #connect(): Promise<ApiFault | null> {
    try {
      const session = await ApiSession.open(this.#options.server, this.#times, this.#signal);
      this.#session = session;
      if (this.#version === null || performance.now() - this.#listedAt > this.#times.relistMs)
        this.#version = await this.#list(session);
      else this.#version = await this.#continued(session, this.#version);
      await this.#watch(session, this.#version);
      return null;
    } catch (failure) {
      if (failure instanceof ApiFault) return failure;
      throw failure;
    } finally {
      this.#session?.close();
      this.#session = null;
    }
  }

  /** Ends the connection. The next one begins with a list, whose version may be lower than before. */
  #begin(fault: ApiFault): void {
    this.#version = null;
    this.#newest = 0;
    this.#session?.end(fault);
  }

  #handleFault({ kind, message }: ApiFault): void {
    // Keep the version: a server whose objects do not change also sends no bookmarks. The next connection
    // shows whether the server responds.
    if (kind === 'quiet') return;
    if (kind === 'expired') this.#version = null;
    if (kind === 'too_large') {
      // After a failed list without pages, try again with pages.
      if (!this.#hasPages) this.#expiredLists = 0;
      else this.#pageSize = Math.max(1, Math.floor(this.#pageSize / 4));
    }
    const isState = kind === 'unauthorized' || kind === 'forbidden' || kind === 'silent';
    this.#enter(isState ? kind : 'backing_off', message);
  }

  #hasLived(): boolean {
    return this.#watchBegan !== null && performance.now() - this.#watchBegan >= this.#times.livedMs;
  }

  /** Returns the milliseconds before the next connection: a random part of the back-off. */
  #waitMs(failures: number, fault: ApiFault | null): number {
    const { firstBackoffMs, mostBackoffMs } = this.#times;
    const most = backoffMs(Math.max(failures - 1, 0), firstBackoffMs, mostBackoffMs);
    return Math.max(Math.random() * most, fault?.retryAfterMs ?? 0);
  }

  /**
   * Reports all objects of a new list. Returns the version of the list. A list that exceeds the limits fails,
   * so that the former objects stay in force.
   */
  async #list(session: ApiSession): Promise<number> {
    const objects: Kept[] = [];
    const bounds = this.#options.bounds ?? LIST_BOUNDS;
    let left = bounds.objects;
    const mostReceived = session.received + bounds.characters;
    let count = 0;
    let lastChange = 0;
    for (let next = ''; ; ) {
      const page = await this.#page(session, next);
      if (this.#version === null) this.#enter('listing', null);
      // Count an empty page as one object, so that an endless list of empty pages ends.
      left -= Math.max(page.objects.length, page.next === '' ? 0 : 1);
      if (left < 0) throw new ApiFault('failed', `the list has more than ${bounds.objects} objects`);
      if (session.received > mostReceived)
        throw new ApiFault('failed', `the list has more than ${bounds.characters} characters`);
      count += page.objects.length;
      for (const { value, version } of page.objects) {
        lastChange = Math.max(lastChange, version);
        const kept = this.#options.keep(value);
        if (kept !== undefined) objects.push(kept);
      }
      next = page.next;
      if (next !== '') continue;
      const { version } = page;
      if (version < this.#newest) this.#options.restored?.next(this);
      this.#newest = version;
      this.#count = count;
      this.#lastChange = lastChange;
      this.#expiredLists = 0;
      this.#listedAt = performance.now();
      this.#heardAt = this.#listedAt;
      this.#subscriber.next({ type: 'listed', objects, version });
      return version;
    }
  }

  /** Reads a page of a list; the first page if `next` is empty. */
  async #page(session: ApiSession, next: string): Promise<ListPage> {
    const limit = this.#hasPages ? { limit: String(this.#pageSize) } : {};
    const path = this.#path + this.#query({ ...limit, ...(next === '' ? {} : { continue: next }) });
    try {
      return listPageOf(await (this.#hasPages ? session.get(path) : session.getWhole(path)));
    } catch (failure) {
      if (next !== '' && failure instanceof ApiFault && failure.kind === 'expired') this.#expiredLists += 1;
      throw failure;
    }
  }

  /**
   * Whether the next list is requested in pages. On a server that compacts often, each `continue` token may
   * expire.
   */
  get #hasPages(): boolean {
    return this.#expiredLists < MOST_EXPIRED_LISTS;
  }

  /**
   * Returns the version from which the next watch continues. Throws an `ApiFault` if the server is at an
   * older version than this reflector, because etcd was restored from a backup. A watch from a later version
   * than that of the server would miss changes. If the server is at a newer version, and no watch has sent
   * anything for `silenceMs`, lists the objects to find changes that the watch did not send.
   */
  async #continued(session: ApiSession, version: number): Promise<number> {
    // Omit the field selector, because the server would read many objects from etcd to find a matching one.
    const page = listPageOf(await session.get(`${this.#path}?limit=1`));
    if (page.version < version)
      throw this.#wentBack(`the version of the server fell from ${version} to ${page.version}`);
    if (page.version === version || performance.now() - this.#heardAt < this.#times.silenceMs) return version;
    const count = this.#count;
    const listed = await this.#list(session);
    this.#isMissing ||= this.#count !== count || this.#lastChange > version;
    return listed;
  }

  /**
   * Notifies the other reflectors (list and watch of one resource) that the server is at an older version,
   * and returns the fault of this reflector.
   */
  #wentBack(message: string): ApiFault {
    this.#newest = 0;
    this.#options.restored?.next(this);
    return new ApiFault('expired', message);
  }

  async #watch(session: ApiSession, version: number): Promise<void> {
    const part = SHORTEST_WATCH + (1 - SHORTEST_WATCH) * Math.random();
    const query = this.#query({
      watch: '1',
      allowWatchBookmarks: 'true',
      resourceVersion: String(version),
      timeoutSeconds: String(Math.ceil(this.#times.watchSeconds * part)),
    });
    const batches = await session.watch(this.#path + query);
    this.#watchBegan = performance.now();
    if (this.#isMissing) this.#enter('silent', MISSING);
    else this.#enter('watching', null);
    for await (const lines of batches) for (const line of lines) this.#handleLine(line);
  }

  /** Handles one line of a watch: an event, or a bookmark with a newer version. */
  #handleLine(line: string): void {
    const event = watchEventOf(line);
    const last = this.#version ?? 0;
    this.#heardAt = performance.now();
    this.#isMissing = false;
    this.#enter('watching', null);
    if (event.type === 'BOOKMARK') {
      if (event.version < last) throw this.#wentBack(`the version of a bookmark fell from ${last} to ${event.version}`);
      this.#version = event.version;
      this.#newest = event.version;
      return;
    }
    if (event.type !== 'MODIFIED') this.#count += event.type === 'ADDED' ? 1 : -1;
    const { uid, version, value } = event.object;
    this.#version = Math.max(last, version);
    this.#newest = Math.max(this.#newest, version);
    const object = event.type === 'DELETED' ? undefined : this.#options.keep(value);
    this.#subscriber.next(object === undefined ? { type: 'deleted', uid, version } : { type: 'changed', object });
  }

  #enter(phase: ReflectorPhase, reason: string | null): void {
    if (phase === this.#phase && reason === this.#reason) return;
    this.#phase = phase;
    this.#reason = reason;
    this.#subscriber.next({ type: 'phase', phase, reason });
  }

  #query(parameters: Readonly<Record<string, string>>): string {
    const fieldSelector = this.#fieldSelector;
    const all = fieldSelector === undefined ? parameters : { ...parameters, fieldSelector };
    return `?${new URLSearchParams(all).toString()}`;
  }
}
