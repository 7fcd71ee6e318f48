import { formatAddress } from '#addresses/ip-address.js';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { isAudited, rankOf, verdictOf } from '#contracts/policy/verdict-word.js';
import { nowMs } from '#dns/clock.js';
import type { Counts } from '#dns/dns-counts.js';
import type { DnsOptions } from '#dns/dns-options.js';
import { ExpiringMap } from '#dns/expiring-map.js';
import type { AnswerGrants } from '#dns/grants/answer-grants.js';
import type { Rebinding } from '#dns/rebinding/rebinding.js';
import { UDP_PAYLOAD } from '#dns/upstream/udp-socket.js';
import type { Upstreams } from '#dns/upstream/upstreams.js';
import { CLASS, EXTENDED_ERROR, OPTION, RCODE, TYPE } from '#dns/wire/dns-numbers.js';
import type { Message } from '#dns/wire/message/dns-message.js';
import { type Query, readQuery } from '#dns/wire/message/dns-query.js';
import type { EdnsOption } from '#dns/wire/message/edns.js';
import { respond, respondError, templateOf } from '#dns/wire/message/response.js';
import type { NameKey } from '#dns/wire/name.js';
import { addressesOf, cacheSecondsOf, chainOf } from '#dns/wire/records/address-chain.js';
import { type Removal, withoutUnenforceable } from '#dns/wire/records/record-filter.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import type { DecidedHits } from '#threads/decided-hits.js';
import { ActiveLookups } from './active-lookups.js';
import type { AnswerCache, CachedAnswer, RemovedAddress } from './answer-cache.js';
import { InFlight } from './in-flight.js';
import type { SeenLookupCounter } from './seen-lookups.js';
import type { UnforwardedNames } from './unforwarded-names.js';

/** The greatest TTL, in seconds, in a response that contains an expired answer (RFC 8767, 4). */
const STALE_TTL = 30;

type Done = (response: Uint8Array) => void;
type PendingClient = { readonly query: Query; readonly source: Address; readonly limit: number; readonly done: Done };

/** The parts of the DNS proxy that the resolver uses. The DNS proxy creates and closes these parts. */
type ResolverParts = {
  readonly upstreams: Upstreams;
  readonly cache: AnswerCache;
  readonly answerGrants: AnswerGrants;
  readonly rebinding: Rebinding;
  readonly unforwarded: UnforwardedNames;
  readonly counts: Counts;
  readonly sightings: SeenLookupCounter;
  readonly hits: Pick<DecidedHits<number>, 'add'>;
};

/**
 * Answers DNS queries. The resolver answers a denied query with an error, and an allowed query from the cache
 * or with an answer of an upstream (D9–D12).
 */
export class Resolver {
  /** Records which Kubernetes objects own source addresses. A change takes effect with the next query. */
  readonly members = new MemberRecord();
  #active: ActiveLookups | null = null;
  /**
   * The sequence number of the lookup tables (the policy for DNS names). `use` and `invalidateGrants`
   * increase this number. Grants from an earlier number then no longer count, so the next answers request
   * their grants again.
   */
  #number = 0;
  readonly #inProgress = new ExpiringMap<string, PendingClient[]>();
  readonly #inFlight = new InFlight();

  constructor(
    private readonly options: Pick<DnsOptions, 'deniedResponse' | 'maxGrantMs' | 'grantsIpv6'>,
    private readonly parts: ResolverParts,
  ) {}

  use(lookups: Lookups): void {
    this.members.policyChanged();
    this.#active = new ActiveLookups(lookups, this.members);
    this.#number++;
  }

  /**
   * Makes the next answers request their grants again. Call this method when the datapath may have lost
   * earlier grants.
   */
  invalidateGrants(): void {
    this.#number++;
  }

  /**
   * Calls `done` exactly once with the response, perhaps before `answer` returns. If the datagram must not be
   * answered, returns false and does not call `done`.
   */
  answer(datagram: Uint8Array, source: Address, isStream: boolean, done: Done): boolean {
    const query = readQuery(datagram);
    if (!('fault' in query)) this.#resolve(query, source, isStream, done);
    else {
      this.parts.counts.refuse(query.fault);
      if (query.id === null) return false;
      done(respondError({ ...query, id: query.id }, query.rcode));
    }
    return true;
  }

  #resolve(query: Query, source: Address, isStream: boolean, done: Done): void {
    const refused = refusalOf(query);
    if (refused !== null) {
      this.parts.counts.refuse(refused.reason);
      done(respondError(query, refused.rcode));
      return;
    }
    const unforwarded = this.parts.unforwarded.answerTo(query.key);
    if (unforwarded !== null) {
      this.parts.counts.refuse(unforwarded.reason);
      done(respondError(query, unforwarded.rcode, unforwarded));
      return;
    }
    const active = this.#active;
    if (active === null) {
      this.#fail(query, EXTENDED_ERROR.notReady, 'the DNS proxy has no policy yet', done);
      return;
    }
    const word = active.decide(source, query.key);
    this.parts.sightings.add(source, query.key, query.type, active.generation, word);
    this.parts.hits.add(active.generation, rankOf(word));
    if (verdictOf(word) === 'deny' && !isAudited(word)) {
      this.#deny(query, done);
      return;
    }
    this.parts.counts.queriesAllow++;
    const limit = isStream ? 65_535 : Math.min(Math.max(query.edns?.payload ?? 512, 512), UDP_PAYLOAD);
    this.#lookUp({ query, source, limit, done });
  }

  #deny(query: Query, done: Done): void {
    const isRefused = this.options.deniedResponse === 'refused';
    this.parts.counts.queriesDeny++;
    if (!isRefused) this.parts.counts.nxdomainPolicy++;
    const extendedError = { code: EXTENDED_ERROR.prohibited, text: 'denied by policy' };
    done(respondError(query, isRefused ? RCODE.refused : RCODE.nxdomain, { extendedError }));
  }

  #lookUp(client: PendingClient): void {
    const { query } = client;
    const question = questionOf(query);
    const cookie = optionsOf(query);
    const now = nowMs();
    const kept = cookie.length > 0 ? undefined : this.parts.cache.fresh(question, now);
    if (kept !== undefined) {
      this.parts.counts.cacheHits++;
      this.#finish(kept, client, now);
      return;
    }
    this.parts.counts.cacheMisses++;
    if (!this.#inFlight.enter(client.source)) {
      this.parts.counts.refuse('too_many_in_flight');
      this.#fail(query, EXTENDED_ERROR.other, 'too many lookups at once', client.done);
      return;
    }
    if (cookie.length > 0) {
      this.#queryUpstreams(query, cookie, (outcome) => this.#settle(question, outcome, [client]));
      return;
    }
    const waiting = this.#inProgress.get(question);
    if (waiting !== undefined) {
      waiting.push(client);
      return;
    }
    const clients = [client];
    this.#inProgress.set(question, clients);
    this.#queryUpstreams(query, [], (outcome) => {
      this.#inProgress.delete(question);
      this.#settle(question, outcome, clients);
    });
  }

  #queryUpstreams(query: Query, options: readonly EdnsOption[], then: (message: Message | null) => void): void {
    const { name, key, type, class: of, edns } = query;
    const upstreamQuery = {
      name,
      key,
      type,
      class: of,
      recursionDesired: isSet(query, RECURSION_DESIRED),
      checkingDisabled: isSet(query, CHECKING_DISABLED),
      dnssecOk: edns?.dnssecOk ?? false,
      options,
    };
    this.parts.upstreams.ask(upstreamQuery, then);
  }

  #settle(question: string, message: Message | null, clients: readonly PendingClient[]): void {
    const now = nowMs();
    const [first] = clients;
    if (first === undefined) return;
    for (const { source } of clients) this.#inFlight.leave(source);
    const cookies = message?.edns?.options.filter(({ code }) => code === OPTION.cookie) ?? [];
    if (message === null || (message.rcode !== RCODE.noerror && message.rcode !== RCODE.nxdomain)) {
      const stale = this.parts.cache.stale(question, now);
      for (const client of clients) {
        if (stale !== undefined) this.#finish(stale, client, now);
        else if (message === null)
          this.#fail(client.query, EXTENDED_ERROR.noReachableAuthority, 'no upstream answered', client.done);
        else this.#relay(message, client, clients.length === 1 ? cookies : []);
      }
      return;
    }
    const chain = chainOf(message, first.query.key);
    const reasonFor = this.parts.rebinding.reasonsFor(first.query.key, now);
    const rebound: RemovedAddress[] = [];
    const drop = (address: Address): boolean => {
      const reason = reasonFor(address);
      if (reason !== null && rebound.length < MAX_REPORTED_ADDRESSES) rebound.push({ address, reason });
      return reason !== null;
    };
    const removals = new Set<Removal>();
    const onRemoved = (why: Removal): void => {
      this.parts.counts.refuse(`left_out_${why}`);
      removals.add(why);
    };
    const { message: rest } = withoutUnenforceable(message, drop, chain, onRemoved, this.options.grantsIpv6);
    const found = addressesOf(rest, chain);
    // Use `message`, not `rest`. If `rest` has no addresses left, `cacheSecondsOf` would treat it as a
    // negative answer, whose caching time comes from its SOA record.
    const seconds = Math.min(cacheSecondsOf(message, chain), this.#longest);
    const kept: CachedAnswer = {
      template: templateOf(rest),
      key: first.query.key,
      addresses: found.addresses,
      storedAt: now,
      freshUntil: now + seconds * 1_000,
      filtered: removals.size === 0 ? null : filteredError(removals, rebound),
      rebound,
      grantedBy: 0,
      grantedUntil: 0,
      grantRequest: null,
    };
    if (seconds > 0) this.parts.cache.keep(question, kept);
    for (const client of clients) this.#finish(kept, client, now, clients.length === 1 ? cookies : []);
  }

  /**
   * Sends the response to the client as soon as the addresses of the answer are granted. Sends SERVFAIL if
   * the grant fails.
   */
  #finish(kept: CachedAnswer, client: PendingClient, now: number, options: readonly EdnsOption[] = []): void {
    const active = this.#active;
    if (active === null) return;
    const patternsOf = (key: NameKey): readonly string[] => active.matching(key);
    this.parts.answerGrants.ensure(kept, patternsOf, this.#number, now, (isInForce) => {
      const { query, limit, done } = client;
      if (!isInForce) {
        this.#fail(query, EXTENDED_ERROR.other, 'the addresses of the answer could not be allowed', done);
        return;
      }
      if (kept.template.rcode === RCODE.nxdomain) this.parts.counts.nxdomainUpstream++;
      const isStale = kept.freshUntil <= now && kept.storedAt < now;
      const answerOptions = isStale
        ? [...options, extendedError(EXTENDED_ERROR.staleAnswer)]
        : kept.filtered === null
          ? options
          : [...options, kept.filtered];
      for (const left of kept.rebound) this.parts.sightings.rebound(client.source, kept.key, left, active.generation);
      done(
        respond(kept.template, query, {
          // Do not reduce the TTLs of an expired answer by its age, because they could become 0. `ttlCap`
          // limits the TTLs to `STALE_TTL` (RFC 8767, 4).
          ageSeconds: isStale ? 0 : Math.floor((now - kept.storedAt) / 1_000),
          limit,
          edns: query.edns === null ? null : { payload: UDP_PAYLOAD, options: answerOptions },
          ttlCap: isStale ? STALE_TTL : this.#longest,
        }),
      );
    });
  }

  /**
   * The longest TTL, in seconds, that a response may have. With a longer TTL, a client would still use an
   * address after the address's grant has ended.
   */
  get #longest(): number {
    return Math.floor(this.options.maxGrantMs / 1_000);
  }

  /**
   * Relays an upstream's error to the client without the records of the error message. The proxy does not
   * cache errors, and grants no addresses for them.
   */
  #relay(message: Message, { query, limit, done }: PendingClient, options: readonly EdnsOption[]): void {
    if (message.rcode === RCODE.servfail) this.parts.counts.servfail++;
    const left = message.answers.length + message.authorities.length + message.additionals.length;
    if (left > 0) this.parts.counts.refuse('left_out_with_error', left);
    const edns = query.edns === null ? null : { payload: UDP_PAYLOAD, options };
    const template = templateOf({ ...message, answers: [], authorities: [], additionals: [] });
    done(respond(template, query, { ageSeconds: 0, limit, edns }));
  }

  #fail(query: Query, code: number, text: string, done: Done): void {
    this.parts.counts.servfail++;
    done(respondError(query, RCODE.servfail, { extendedError: { code, text } }));
  }
}

const RECURSION_DESIRED = 0x0100;
const CHECKING_DISABLED = 0x0010;

function isSet({ flags }: Query, flag: number): boolean {
  return (flags & flag) !== 0;
}

/** Returns the cache key: every field of a query that can change an upstream's answer. */
function questionOf(query: Query): string {
  const bits =
    (query.edns?.dnssecOk === true ? 1 : 0) +
    (isSet(query, CHECKING_DISABLED) ? 2 : 0) +
    (isSet(query, RECURSION_DESIRED) ? 4 : 0);
  return String.fromCharCode(query.type, bits) + query.key;
}

/**
 * Returns the EDNS options of a client's query that the proxy forwards to upstreams: only the DNS cookie. An
 * upstream answers each cookie separately (RFC 7873), so a query with a cookie does not use the cache.
 */
function optionsOf({ edns }: Query): readonly EdnsOption[] {
  return edns === null || edns.options.length === 0 ? [] : edns.options.filter(({ code }) => code === OPTION.cookie);
}

/**
 * Types from 128 to 254 are not data types (RFC 6895): TKEY, TSIG, IXFR, AXFR and others. The proxy answers
 * queries for these types with NOTIMP.
 */
const FIRST_META = 128;

function refusalOf({ type, class: of }: Query): { readonly reason: string; readonly rcode: number } | null {
  if (of !== CLASS.in) return { reason: 'class', rcode: RCODE.refused };
  if ((type >= FIRST_META && type < TYPE.any) || type === TYPE.opt) return { reason: 'meta_type', rcode: RCODE.notimp };
  return null;
}

function extendedError(code: number, text = ''): EdnsOption {
  return { code: OPTION.extendedError, data: Uint8Array.of(code >> 8, code & 0xff, ...Buffer.from(text, 'utf8')) };
}

/** The maximum number of removed addresses of one answer that findings report. */
const MAX_REPORTED_ADDRESSES = 8;
const REMOVALS: Readonly<Record<Removal, string>> = {
  rebinding: 'rebind protection',
  ipv6: 'IPv6 addresses',
  hint: 'address hints',
  ech: 'keys for Encrypted Client Hello',
  beyond_128: 'addresses beyond the first 128',
  other_name: 'addresses of other names',
  signature: 'signatures of changed records',
};

/** Builds the Extended DNS Error that tells the client which records the proxy removed from the answer. */
function filteredError(removals: ReadonlySet<Removal>, [rebound]: readonly RemovedAddress[]): EdnsOption {
  if (rebound !== undefined) {
    const { address, reason } = rebound;
    return extendedError(EXTENDED_ERROR.blocked, `rebind protection: ${formatAddress(address)} is ${reason}`);
  }
  const words = [...removals].map((why) => REMOVALS[why]);
  return extendedError(EXTENDED_ERROR.filtered, `removed from the answer: ${words.join(', ')}`);
}
