import { setTimeout as pause } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { MessagePort } from 'node:worker_threads';
import type { DnsSettings } from '#contracts/config/config-reload.js';
import type { DnsStats } from '#contracts/dns/dns-stats.js';
import type { KnownName, SeenLookups } from '#contracts/dns/seen-lookup.js';
import { nowMs } from '#dns/clock.js';
import { Counts, RecentWaits } from '#dns/dns-counts.js';
import type { DnsOptions } from '#dns/dns-options.js';
import { AnswerGrants } from '#dns/grants/answer-grants.js';
import { type Granted, Granter } from '#dns/grants/granter.js';
import { KnownNames } from '#dns/grants/known-names.js';
import { descriptorsAt, keyOf, type ListenAt, listensAt } from '#dns/listeners/dns-sockets.js';
import { TcpListener } from '#dns/listeners/tcp-listener.js';
import { UdpListener } from '#dns/listeners/udp-listener.js';
import { Rebinding } from '#dns/rebinding/rebinding.js';
import { AnswerCache } from '#dns/resolver/answer-cache.js';
import { Resolver } from '#dns/resolver/resolver.js';
import { SeenLookupCounter } from '#dns/resolver/seen-lookups.js';
import { UnforwardedNames } from '#dns/resolver/unforwarded-names.js';
import { Upstreams } from '#dns/upstream/upstreams.js';
import { Descriptors } from '#libc/descriptors.js';
import type { SocketDescriptors } from '#sockets/listening/listening-sockets.js';
import { RouteNotifications } from '#sockets/routes/route-notifications.js';
import { Pump } from '#sockets/udp/pump.js';
import { DecidedHits } from '#threads/decided-hits.js';

const TICK_MS = 20;
/**
 * After the removal of a listening address, the proxy still answers there for this time, in milliseconds. No
 * lookup takes longer.
 */
const REMOVED_FOR_MS = 2_000;
/**
 * When the proxy closes, it waits for the answers of queries in progress for at most this time, in
 * milliseconds.
 */
const FINISH_MS = 500;
const FINISH_POLL_MS = 5;

type Listeners = { readonly at: ListenAt; readonly udp: UdpListener; readonly tcp: TcpListener };

/**
 * The DNS proxy itself; all its work runs in the thread that creates the object. `DnsProxy` is the interface
 * for other threads.
 */
export class LocalDnsProxy {
  readonly granter: Granter;
  readonly resolver: Resolver;
  readonly #counts = new Counts();
  readonly #sightings = new SeenLookupCounter();
  readonly #hits = new DecidedHits<number>((rank) => rank);
  readonly #known = new KnownNames((address, key) => this.#sightings.named(address, key));
  readonly #waits = new RecentWaits();
  readonly #unanswered = { count: 0 };
  readonly #cache: AnswerCache;
  readonly #pump: Pump;
  readonly #upstreams: Upstreams;
  readonly #rebinding: Rebinding;
  readonly #unforwarded: UnforwardedNames;
  readonly #routeNotifications: RouteNotifications;
  /** The options in force. The parts of the proxy share this object and read it at each use. */
  readonly #options: { -readonly [Name in keyof DnsOptions]: DnsOptions[Name] };
  #listeners: ReadonlyMap<string, Listeners>;
  /**
   * Listeners on removed listening addresses, where the proxy still answers for a short time. The key is
   * `keyOf` the address.
   */
  readonly #removed = new Map<string, Listeners & { readonly closeAt: number }>();
  #lastTask: Promise<unknown> = Promise.resolve();
  /** The function that begins to serve the queries that wait in the sockets; null after its call. */
  #begin: (() => void) | null = null;
  #isProbing = false;
  readonly #ticking: NodeJS.Timeout;

  constructor(
    given: DnsOptions,
    onAliveness: (alive: readonly string[], dead: readonly string[]) => void,
    descriptors = new Descriptors(),
  ) {
    const counts = this.#counts;
    const options = { ...given };
    this.#options = options;
    this.#cache = new AnswerCache(options.cacheBytes, options.serveStaleMs);
    this.#pump = new Pump((datagrams) => counts.refuse('not_sent', datagrams), descriptors);
    this.granter = new Granter(this.#pump, (count) => counts.refuse('no_room_to_learn', count), options.grantTimeoutMs);
    this.#upstreams = new Upstreams(
      this.#pump,
      options,
      (reason) => counts.refuse(`answer_${reason}`),
      () => onAliveness(this.#addresses(true), this.#addresses(false)),
    );
    this.#rebinding = new Rebinding(options.rebindProtection, options.rebindAllow);
    this.#unforwarded = new UnforwardedNames(options.canaryNames);
    this.#routeNotifications = new RouteNotifications(descriptors);
    this.resolver = new Resolver(options, {
      upstreams: this.#upstreams,
      cache: this.#cache,
      answerGrants: new AnswerGrants(options, this.granter, this.#known, counts, this.#waits),
      rebinding: this.#rebinding,
      unforwarded: this.#unforwarded,
      counts,
      sightings: this.#sightings,
      hits: this.#hits,
    });
    this.#listeners = new Map(listensAt(options).map((at) => [keyOf(at), this.#newListeners(at)]));
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
  }

  /**
   * Serves the listening sockets `descriptors`. With `waitMs`, queries wait in the sockets until the datapath
   * thread answers a grant request in time, for at most `waitMs`.
   */
  open(descriptors: SocketDescriptors, waitMs = 0): Promise<void> {
    return this.#runExclusive(async () => {
      this.#upstreams.open();
      const begin = async (): Promise<void> => {
        for (const { at, udp, tcp } of this.#listeners.values()) {
          const fds = descriptorsAt(at, descriptors);
          udp.open(fds.udp);
          await tcp.open(fds.tcp);
        }
      };
      if (waitMs === 0) return begin();
      const late = setTimeout(() => this.#begin?.(), waitMs);
      this.#begin = () => {
        clearTimeout(late);
        this.#begin = null;
        void this.#runExclusive(begin);
      };
    });
  }

  /**
   * Changes the settings; `descriptors` are the listening sockets for the new settings. A failure changes
   * nothing. On a removed listening address, the proxy answers for `REMOVED_FOR_MS` more, so that lookups in
   * progress get their answer.
   */
  change(settings: DnsSettings, descriptors: SocketDescriptors): Promise<void> {
    this.#begin?.();
    return this.#runExclusive(async () => {
      const before = this.#options;
      const wanted = listensAt({ ...before, ...settings });
      const opened: Listeners[] = [];
      const next = new Map<string, Listeners>();
      try {
        for (const at of wanted) {
          const key = keyOf(at);
          const removed = this.#removed.get(key);
          // A removed address is wanted again: keep its listener open during this change.
          if (removed !== undefined) this.#removed.set(key, { ...removed, closeAt: nowMs() + REMOVED_FOR_MS });
          const standing = this.#listeners.get(key) ?? removed;
          const listeners = standing ?? this.#newListeners(at);
          next.set(key, listeners);
          if (standing !== undefined) continue;
          opened.push(listeners);
          const fds = descriptorsAt(at, descriptors);
          listeners.udp.open(fds.udp);
          await listeners.tcp.open(fds.tcp);
        }
        this.#upstreams.change(settings.upstreams);
      } catch (failure) {
        for (const { udp, tcp } of opened) {
          udp.close();
          await tcp.close();
        }
        throw failure;
      }
      this.#replaceListeners(next);
      const rebindingChanged =
        settings.rebindProtection !== before.rebindProtection ||
        !isDeepStrictEqual(settings.rebindAllow, before.rebindAllow);
      Object.assign(this.#options, settings);
      this.#cache.change(settings.cacheBytes, settings.serveStaleMs);
      this.#rebinding.change(settings.rebindProtection, settings.rebindAllow);
      this.#unforwarded.change(settings.canaryNames);
      // Clear the cache, because its answers lack the addresses that the former settings removed.
      if (rebindingChanged) this.#cache.clear();
    });
  }

  #newListeners(at: ListenAt): Listeners {
    const parts = { resolver: this.resolver, counts: this.#counts, unanswered: this.#unanswered };
    return {
      at,
      udp: new UdpListener(this.#pump, parts),
      tcp: new TcpListener(parts, this.#options.tcpIdleMs),
    };
  }

  #replaceListeners(next: ReadonlyMap<string, Listeners>): void {
    const closeAt = nowMs() + REMOVED_FOR_MS;
    for (const [key, listeners] of this.#listeners)
      if (!next.has(key)) this.#removed.set(key, { ...listeners, closeAt });
    for (const key of next.keys()) this.#removed.delete(key);
    this.#listeners = next;
  }

  /** Mutex for `open` and `change`. */
  #runExclusive(act: () => Promise<void>): Promise<void> {
    const done = this.#lastTask.then(act);
    this.#lastTask = done.catch(() => {});
    return done;
  }

  /**
   * Requests grants, and sends the counts of `sendHits`, over this port from now on. The datapath thread may
   * have lost its earlier grants, so the next answers request their grants again.
   */
  setGrantPort(port: MessagePort | null): void {
    this.granter.use(port);
    this.#hits.sendBy(port);
    this.resolver.invalidateGrants();
    this.#probe();
  }

  /**
   * While queries wait: sends a grant request without grants, and begins to serve the queries if the datapath
   * thread answers in time. Otherwise all these queries would get SERVFAIL while the thread is still busy
   * with its start.
   */
  #probe(): void {
    if (this.#begin === null || this.#isProbing) return;
    this.#isProbing = true;
    const done = (granted: Granted): void => {
      this.#isProbing = false;
      if (granted !== 'none') this.#begin?.();
    };
    this.granter.grant([], [], { expiryNs: 0, isAwaited: true, done });
  }

  stats(): DnsStats {
    const { queriesAllow, queriesDeny, nxdomainPolicy, nxdomainUpstream, servfail, grants, cacheHits, cacheMisses } =
      this.#counts;
    return {
      queriesAllow,
      queriesDeny,
      nxdomainPolicy,
      nxdomainUpstream,
      servfail,
      grants,
      learning: this.#waits.summary(),
      cacheHits,
      cacheMisses,
      cacheEntries: this.#cache.entries,
      cacheBytes: this.#cache.bytes,
      refused: this.#counts.refused(),
      upstreams: this.#upstreams.all.map((upstream) => upstream.stats()),
    };
  }

  names(): readonly KnownName[] {
    return this.#known.list(nowMs());
  }

  /** Sets whether `drainSeen` returns allowed lookups besides denied lookups. */
  wantLookups(wanted: boolean): void {
    this.#sightings.collectsAllowed = wanted;
  }

  /**
   * Sends to the datapath thread how many lookups each rule or default has decided since the last call. Call
   * this method a few times a second.
   */
  sendHits(): void {
    this.#hits.send();
  }

  drainSeen(): SeenLookups {
    const seen = this.#sightings.drain();
    if (seen.lostDenied > 0) this.#counts.refuse('denial_not_told', seen.lostDenied);
    return seen;
  }

  /**
   * Stops receiving. Queries in progress get their answers within `FINISH_MS`; further queries stay in the
   * sockets.
   */
  async close(): Promise<void> {
    this.#begin = null;
    const all = [...this.#listeners.values(), ...this.#removed.values()];
    for (const { udp, tcp } of all) {
      udp.pause();
      tcp.pause();
    }
    for (const until = nowMs() + FINISH_MS; this.#unanswered.count > 0 && nowMs() < until; )
      await pause(FINISH_POLL_MS);
    clearInterval(this.#ticking);
    for (const { udp, tcp } of all) {
      udp.close();
      await tcp.close();
    }
    this.#upstreams.close();
    this.#routeNotifications.close();
    this.#pump.close();
    this.sendHits();
    this.granter.use(null);
  }

  #tick(): void {
    if (this.#routeNotifications.drain()) {
      this.#upstreams.renew();
      this.#rebinding.forgetOwn();
    }
    this.#upstreams.tick();
    this.#closeRemoved();
    this.#probe();
    this.granter.tick();
  }

  #closeRemoved(): void {
    const now = nowMs();
    for (const [key, { udp, tcp, closeAt }] of this.#removed) {
      if (closeAt > now) continue;
      this.#removed.delete(key);
      udp.close();
      void tcp.close();
    }
  }

  #addresses(alive: boolean): readonly string[] {
    return this.#upstreams.all.filter(({ isAlive }) => isAlive === alive).map(({ address }) => address);
  }
}
