import { append } from '#arrays/append.js';
import { type DnsOptions, type Endpoint, textOf } from '#dns/dns-options.js';
import { ExpiringMap } from '#dns/expiring-map.js';
import type { Message } from '#dns/wire/message/dns-message.js';
import type { Pump } from '#sockets/udp/pump.js';
import { nowMs } from '../clock.js';
import { type Attempt, isRefusal, Upstream } from './dns-upstream.js';
import type { UpstreamQuery } from './pending-query.js';

/**
 * While a query has no answer, the proxy also sends it to the next upstream, every `STEP_MS` milliseconds.
 * The proxy uses the first answer.
 */
const STEP_MS = 380;
/**
 * A query without an answer fails after this time (F19). The value is a multiple of `STEP_MS`, because the
 * proxy checks the age of a query only every `STEP_MS`.
 */
const TIMEOUT_MS = 5 * STEP_MS;
const PROBE_EVERY_MS = 1_000;

/**
 * The callback that gets the outcome of a query, exactly once. `message` is an answer, or else the last
 * refusal of an upstream; null if no upstream responded.
 */
export type OnOutcome = (message: Message | null) => void;

class UpstreamQueryInProgress {
  readonly attempts: { readonly by: Upstream; readonly attempt: Attempt; isOver: boolean }[] = [];
  refusal: Message | null = null;
  #steps = 1;
  isOver = false;

  constructor(
    readonly number: number,
    readonly asked: UpstreamQuery,
    readonly order: readonly Upstream[],
    readonly startedAt: number,
    readonly onOutcome: OnOutcome,
  ) {}

  get nextAt(): number {
    return this.startedAt + this.#steps * STEP_MS;
  }

  get isOverdue(): boolean {
    return this.#steps * STEP_MS > TIMEOUT_MS;
  }

  wait(): void {
    this.#steps++;
  }
}

/**
 * All upstreams. An upstream that does not answer delays a query by at most `STEP_MS`. After `SILENT`
 * unanswered queries, the proxy queries this upstream last, so that it delays no query which another upstream
 * answers.
 */
export class Upstreams {
  #all: readonly Upstream[];
  /** Removed upstreams, which stay open until the queries sent to them are over. */
  #removed: { readonly upstream: Upstream; readonly closeAt: number }[] = [];
  /**
   * The queries in progress, ordered by `nextAt`. Appending a query at the end keeps this order, because
   * every query waits for the same time `STEP_MS` before it is sent to the next upstream.
   */
  readonly #queries = new ExpiringMap<number, UpstreamQueryInProgress>();
  #lastQuery = 0;
  #probedAt = 0;

  constructor(
    private readonly pump: Pump,
    private readonly options: Pick<DnsOptions, 'upstreams' | 'upstreamOrder' | 'mark'>,
    private readonly onStray: (reason: string) => void,
    private readonly onAliveness: () => void,
  ) {
    this.#all = options.upstreams.map((endpoint) => this.#upstream(endpoint));
  }

  get all(): readonly Upstream[] {
    return this.#all;
  }

  open(): void {
    for (const upstream of this.#all) upstream.open();
  }

  /**
   * Replaces the list of upstreams. An upstream that stays keeps its sockets and its state. Queries that were
   * sent to a removed upstream can still be answered by it. Throws a `KernelFailure` and changes nothing if a
   * socket cannot be opened.
   */
  change(endpoints: readonly Endpoint[]): void {
    const kept = new Map(this.#all.map((upstream) => [upstream.address, upstream]));
    const next = endpoints.map((endpoint) => kept.get(textOf(endpoint)) ?? this.#upstream(endpoint));
    const added = next.filter((upstream) => !this.#all.includes(upstream));
    try {
      for (const upstream of added) upstream.open();
    } catch (failure) {
      for (const upstream of added) upstream.close();
      throw failure;
    }
    const closeAt = nowMs() + TIMEOUT_MS;
    const removed = this.#all.filter((upstream) => !next.includes(upstream));
    append(
      this.#removed,
      removed.map((upstream) => ({ upstream, closeAt })),
    );
    this.#all = next;
    this.onAliveness();
  }

  #upstream(endpoint: Endpoint): Upstream {
    return new Upstream(this.pump, endpoint, this.options.mark, this.onStray, this.onAliveness);
  }

  /**
   * Replaces the sockets to each upstream for which the node's source address has changed. Call this method
   * when addresses or routes may have changed.
   */
  renew(): void {
    for (const upstream of this.#all) upstream.renew();
  }

  close(): void {
    for (const query of this.#queries.values()) this.#end(query, null);
    for (const upstream of this.#all) upstream.close();
    for (const { upstream } of this.#removed) upstream.close();
    this.#removed = [];
  }

  ask(asked: UpstreamQuery, onOutcome: OnOutcome): void {
    const query = new UpstreamQueryInProgress(++this.#lastQuery, asked, this.#order(), nowMs(), onOutcome);
    this.#queries.set(query.number, query);
    this.#step(query);
  }

  /**
   * Sends each query that has waited for `STEP_MS` to the next upstream, fails overdue queries, and probes
   * dead upstreams. Call this method every few milliseconds.
   */
  tick(): void {
    const now = nowMs();
    for (
      let query = this.#queries.oldest();
      query !== undefined && query.nextAt <= now;
      query = this.#queries.oldest()
    ) {
      query.wait();
      if (query.isOverdue) this.#end(query, query.refusal);
      else {
        for (const each of query.attempts.slice(-1)) if (!each.isOver) each.by.countTimeout();
        this.#queries.delete(query.number);
        this.#queries.set(query.number, query);
        this.#step(query);
      }
    }
    if (this.#removed.some(({ closeAt }) => closeAt <= now)) {
      for (const { upstream, closeAt } of this.#removed) if (closeAt <= now) upstream.close();
      this.#removed = this.#removed.filter(({ closeAt }) => closeAt > now);
    }
    if (now - this.#probedAt >= PROBE_EVERY_MS) {
      this.#probedAt = now;
      for (const upstream of this.#all) if (!upstream.isAlive) upstream.probe();
    }
  }

  /**
   * Sends the query to the next upstream in `query.order`; after the last upstream, starts again with the
   * first.
   */
  #step(query: UpstreamQueryInProgress): void {
    const by = query.order[query.attempts.length % query.order.length];
    if (by === undefined) return;
    const attempt = by.ask(
      query.asked,
      (message) => {
        entry.isOver = true;
        this.#answered(query, message);
      },
      () => {
        entry.isOver = true;
        this.#failed(query);
      },
    );
    const entry = { by, attempt, isOver: false };
    query.attempts.push(entry);
  }

  #answered(query: UpstreamQueryInProgress, message: Message): void {
    if (query.isOver) return;
    if (!isRefusal(message)) this.#end(query, message);
    else {
      query.refusal = message;
      this.#failed(query);
    }
  }

  /**
   * Handles the failure of a query at one upstream. Sends the query to the next upstream that has not
   * received it. If the query failed at every upstream, the query ends.
   */
  #failed(query: UpstreamQueryInProgress): void {
    if (query.isOver) return;
    if (query.attempts.length < query.order.length) this.#step(query);
    else if (query.attempts.every(({ isOver }) => isOver)) this.#end(query, query.refusal);
  }

  #end(query: UpstreamQueryInProgress, message: Message | null): void {
    if (query.isOver) return;
    query.isOver = true;
    this.#queries.delete(query.number);
    for (const { attempt, isOver } of query.attempts) if (!isOver) attempt.forget();
    query.onOutcome(message);
  }

  #order(): readonly Upstream[] {
    if (this.#all.length === 1) return this.#all;
    const rank = (upstream: Upstream): number =>
      (upstream.isSilent ? 1e9 : 0) + (this.options.upstreamOrder === 'fastest' ? (upstream.latencyMs ?? 0) : 0);
    return this.#all.toSorted((one, other) => rank(one) - rank(other));
  }
}
