import type { MessagePort } from 'node:worker_threads';
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
  readonly #listeners: readonly (UdpListener | TcpListener)[];
  readonly #ticking: NodeJS.Timeout;

  constructor(
    options: DnsOptions,
    onAliveness: (alive: readonly string[], dead: readonly string[]) => void,
    descriptors = new Descriptors(),
  ) {
    const counts = this.#counts;
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
    this.#listeners = listensAt(options).flatMap((at) => [
      new UdpListener(this.#pump, at, this.resolver, counts),
      new TcpListener(at, this.resolver, counts, options.tcpIdleMs),
    ]);
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
  }

  async open(): Promise<void> {
    this.#upstreams.open();
    for (const listener of this.#listeners) await listener.open();
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
    for (const listener of this.#listeners) await listener.close();
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
    this.granter.tick();
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
