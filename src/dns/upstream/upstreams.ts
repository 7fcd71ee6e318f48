import type { DnsOptions } from '#dns/dns-options.js';
import { ExpiringMap } from '#dns/expiring-map.js';
import type { Message } from '#dns/wire/dns-message.js';
import type { Pump } from '#sockets/pump.js';
import { nowMs } from '../clock.js';
import { type Attempt, isRefusal, Upstream } from './dns-upstream.js';
import type { UpstreamQuery } from './pending-query.js';

/**
 * While a query has no answer, the proxy also sends it to the next resolver, every `STEP_MS` milliseconds.
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
 * refusal of a resolver; null if no resolver responded.
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
 * All upstream resolvers. A resolver that does not answer delays a query by at most `STEP_MS`. After `SILENT`
 * unanswered queries, the proxy queries this resolver last, so that it delays no query which another resolver
 * answers.
 */
export class Upstreams {
  readonly #all: readonly Upstream[];
  /**
   * The queries in progress, ordered by `nextAt`. Appending a query at the end keeps this order, because
   * every query waits for the same time `STEP_MS` before it is sent to the next resolver.
   */
  readonly #queries = new ExpiringMap<number, UpstreamQueryInProgress>();
  #lastRace = 0;
  #probedAt = 0;

  constructor(
    pump: Pump,
    private readonly options: Pick<DnsOptions, 'upstreams' | 'upstreamOrder' | 'mark'>,
    onStray: (reason: string) => void,
    onAliveness: () => void,
  ) {
    this.#all = options.upstreams.map((endpoint) => new Upstream(pump, endpoint, options.mark, onStray, onAliveness));
  }

  get all(): readonly Upstream[] {
    return this.#all;
  }

  open(): void {
    for (const upstream of this.#all) upstream.open();
  }

  /**
   * Replaces the sockets to each resolver for which the node's source address has changed. Call this method
   * when addresses or routes may have changed.
   */
  renew(): void {
    for (const upstream of this.#all) upstream.renew();
  }

  close(): void {
    for (const race of this.#queries.values()) this.#end(race, null);
    for (const upstream of this.#all) upstream.close();
  }

  ask(asked: UpstreamQuery, onOutcome: OnOutcome): void {
    const race = new UpstreamQueryInProgress(++this.#lastRace, asked, this.#order(), nowMs(), onOutcome);
    this.#queries.set(race.number, race);
    this.#step(race);
  }

  /**
   * Sends each query that has waited for `STEP_MS` to the next resolver, fails overdue queries, and probes
   * dead resolvers. Call this method every few milliseconds.
   */
  tick(): void {
    const now = nowMs();
    for (let race = this.#queries.oldest(); race !== undefined && race.nextAt <= now; race = this.#queries.oldest()) {
      race.wait();
      if (race.isOverdue) this.#end(race, race.refusal);
      else {
        for (const each of race.attempts.slice(-1)) if (!each.isOver) each.by.countTimeout();
        this.#queries.delete(race.number);
        this.#queries.set(race.number, race);
        this.#step(race);
      }
    }
    if (now - this.#probedAt >= PROBE_EVERY_MS) {
      this.#probedAt = now;
      for (const upstream of this.#all) if (!upstream.isAlive) upstream.probe();
    }
  }

  /**
   * Sends the query to the next resolver in `race.order`; after the last resolver, starts again with the
   * first.
   */
  #step(race: UpstreamQueryInProgress): void {
    const by = race.order[race.attempts.length % race.order.length];
    if (by === undefined) return;
    const attempt = by.ask(
      race.asked,
      (message) => {
        entry.isOver = true;
        this.#answered(race, message);
      },
      () => {
        entry.isOver = true;
        this.#failed(race);
      },
    );
    const entry = { by, attempt, isOver: false };
    race.attempts.push(entry);
  }

  #answered(race: UpstreamQueryInProgress, message: Message): void {
    if (race.isOver) return;
    if (!isRefusal(message)) this.#end(race, message);
    else {
      race.refusal = message;
      this.#failed(race);
    }
  }

  /**
   * Handles the failure of a query at one resolver. Sends the query to the next resolver that has not
   * received it. If the query failed at every resolver, the query ends.
   */
  #failed(race: UpstreamQueryInProgress): void {
    if (race.isOver) return;
    if (race.attempts.length < race.order.length) this.#step(race);
    else if (race.attempts.every(({ isOver }) => isOver)) this.#end(race, race.refusal);
  }

  #end(race: UpstreamQueryInProgress, message: Message | null): void {
    if (race.isOver) return;
    race.isOver = true;
    this.#queries.delete(race.number);
    for (const { attempt, isOver } of race.attempts) if (!isOver) attempt.forget();
    race.onOutcome(message);
  }

  #order(): readonly Upstream[] {
    if (this.#all.length === 1) return this.#all;
    const rank = (upstream: Upstream): number =>
      (upstream.isSilent ? 1e9 : 0) + (this.options.upstreamOrder === 'fastest' ? (upstream.latencyMs ?? 0) : 0);
    return this.#all.toSorted((one, other) => rank(one) - rank(other));
  }
}
