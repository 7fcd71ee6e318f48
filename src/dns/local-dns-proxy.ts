import { isDeepStrictEqual } from 'node:util';
import type { MessagePort } from 'node:worker_threads';
import type { DnsSettings } from '#contracts/config-reload.js';
import type { KnownName } from '#contracts/known-name.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';
import { parseAddress } from '#policy/model/ipv4.js';
import { Descriptors } from '#sockets/descriptors.js';
import { Pump } from '#sockets/pump.js';
import { RouteNotifications } from '#sockets/route-notifications.js';
import { DecidedHits } from '#threads/decided-hits.js';
import { AnswerCache } from './answer-cache.js';
import { AnswerGrants } from './answer-grants.js';
import { nowMs } from './clock.js';
import { Counts } from './dns-counts.js';
import type { DnsOptions, Endpoint, ListenAt } from './dns-options.js';
import type { DnsStats } from './dns-proxy.js';
import { Granter } from './granter.js';
import { KnownNames } from './known-names.js';
import { Rebinding } from './rebinding.js';
import { RecentWaits } from './recent-waits.js';
import { Resolver } from './resolver.js';
import { SeenLookupCounter } from './seen-lookups.js';
import { TcpListener } from './tcp-listener.js';
import { UdpListener } from './udp-listener.js';
import { Upstreams } from './upstream/upstreams.js';

const TICK_MS = 20;
/** A removed listening address still answers for this time, which is longer than any lookup takes. */
const REMOVED_FOR_MS = 2_000;

type Listeners = { readonly udp: UdpListener; readonly tcp: TcpListener };

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
  readonly #cache: AnswerCache;
  readonly #pump: Pump;
  readonly #upstreams: Upstreams;
  readonly #rebinding: Rebinding;
  readonly #routeNotifications: RouteNotifications;
  /** The options in force. The parts of the proxy share this object and read it at each use. */
  readonly #options: { -readonly [Name in keyof DnsOptions]: DnsOptions[Name] };
  #listeners: ReadonlyMap<string, Listeners>;
  /** Listeners on removed addresses, which still answer for a short time. The key is `keyOf` the address. */
  readonly #removed = new Map<string, Listeners & { readonly closeAt: number }>();
  #turn: Promise<unknown> = Promise.resolve();
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
    this.#routeNotifications = new RouteNotifications(descriptors);
    this.resolver = new Resolver(options, {
      upstreams: this.#upstreams,
      cache: this.#cache,
      answerGrants: new AnswerGrants(options, this.granter, this.#known, counts, this.#waits),
      rebinding: this.#rebinding,
      counts,
      sightings: this.#sightings,
      hits: this.#hits,
    });
    this.#listeners = new Map(listensAt(options).map((at) => [keyOf(at), this.#listenersAt(at)]));
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
  }

  open(): Promise<void> {
    return this.#inTurn(async () => {
      this.#upstreams.open();
      for (const { udp, tcp } of this.#listeners.values()) {
        udp.open();
        await tcp.open();
      }
    });
  }

  /**
   * Changes the settings. New sockets are opened first, so that a failure changes nothing. A removed address
   * answers for `REMOVED_FOR_MS` more: lookups in progress get their answer, and a change back opens nothing.
   */
  change(settings: DnsSettings): Promise<void> {
    return this.#inTurn(async () => {
      const before = this.#options;
      const wanted = listensAt({ ...before, ...settings });
      const opened: Listeners[] = [];
      const next = new Map<string, Listeners>();
      try {
        for (const at of wanted) {
          const key = keyOf(at);
          const standing = this.#listeners.get(key) ?? this.#removed.get(key);
          const listeners = standing ?? this.#listenersAt(at);
          next.set(key, listeners);
          if (standing !== undefined) continue;
          opened.push(listeners);
          listeners.udp.open();
          await listeners.tcp.open();
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
      // Cached answers lack the addresses that the former settings removed.
      if (rebindingChanged) this.#cache.clear();
    });
  }

  #listenersAt(at: ListenAt): Listeners {
    return {
      udp: new UdpListener(this.#pump, at, this.resolver, this.#counts),
      tcp: new TcpListener(at, this.resolver, this.#counts, this.#options.tcpIdleMs),
    };
  }

  #replaceListeners(next: ReadonlyMap<string, Listeners>): void {
    const closeAt = nowMs() + REMOVED_FOR_MS;
    for (const [key, listeners] of this.#listeners)
      if (!next.has(key)) this.#removed.set(key, { ...listeners, closeAt });
    for (const key of next.keys()) this.#removed.delete(key);
    this.#listeners = next;
  }

  /** Runs `open` and `change` one after the other. */
  #inTurn(act: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(act);
    this.#turn = done.catch(() => {});
    return done;
  }

  /**
   * Requests grants, and sends the counts of `sendHits`, over this port from now on. The datapath thread may
   * have lost its earlier grants, so the next answers request their grants again.
   */
  grantBy(port: MessagePort | null): void {
    this.granter.use(port);
    this.#hits.sendBy(port);
    this.resolver.invalidateGrants();
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

  /** Sets whether `takeSeen` returns allowed lookups besides denied lookups. */
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

  takeSeen(): SeenLookups {
    const seen = this.#sightings.take();
    if (seen.lostDenied > 0) this.#counts.refuse('denial_not_told', seen.lostDenied);
    return seen;
  }

  async close(): Promise<void> {
    clearInterval(this.#ticking);
    for (const { udp, tcp } of [...this.#listeners.values(), ...this.#removed.values()]) {
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
    if (this.#routeNotifications.take()) {
      this.#upstreams.renew();
      this.#rebinding.forgetOwn();
    }
    this.#upstreams.tick();
    this.#closeRemoved();
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

/**
 * The address and port of the sockets that receive diverted DNS queries. The BPF program uses the same
 * address (`bpf/inspect/divert_dns.h`).
 */
const DIVERTED: Endpoint = { host: '127.83.0.53', port: 53 };

function keyOf({ address, port, isTransparent }: ListenAt): string {
  return `${address}:${port}:${isTransparent}`;
}

function listensAt({ listen, transparent, mark }: DnsOptions): readonly ListenAt[] {
  const all = [
    ...listen.map((at) => ({ ...at, isTransparent: false })),
    ...(transparent ? [{ ...DIVERTED, isTransparent: true }] : []),
  ];
  return all.map(({ host, port, isTransparent }) => {
    const address = parseAddress(host);
    if (address === undefined) throw new Error(`${host} is not an IPv4 address`);
    return { address, port, isTransparent, mark };
  });
}
