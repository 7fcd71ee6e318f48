import { monotonicNs, nowMs } from '#dns/clock.js';
import type { Counts, RecentWaits } from '#dns/dns-counts.js';
import type { DnsOptions } from '#dns/dns-options.js';
import type { CachedAnswer } from '#dns/resolver/answer-cache.js';
import { isPlain, type NameKey } from '#dns/wire/name.js';
import type { Granted, Granter } from './granter.js';
import type { KnownNames } from './known-names.js';

/**
 * The proxy answers a client without waiting for the renewal of a grant if the current grant stays in force
 * for more than this time.
 */
const IN_FORCE_FOR_MS = 1_000;
/**
 * The end of a grant is rounded up to a multiple of 1, 2, 4 or 8 s (the grid), but not beyond `maxGrantMs`.
 * Without a grid, each answer whose grant would end a little later would renew the grant. A grid above 1 s is
 * at most 1/15 of the grant's length.
 */
const GRID_MS = 1_000;
const GRID_PART = 1 / 15;
const GREATEST_GRID_MS = 8_000;

/**
 * Grants the addresses of DNS answers to the hostname patterns that match the queried name, so that rules
 * with these patterns apply to the addresses (D12).
 */
export class AnswerGrants {
  constructor(
    private readonly options: Pick<DnsOptions, 'minGrantMs' | 'maxGrantMs'>,
    private readonly granter: Granter,
    private readonly known: KnownNames,
    private readonly counts: Counts,
    private readonly waits: RecentWaits,
  ) {}

  /**
   * Calls `done` with true when the addresses of the answer have their grants, or with false if the grant
   * request fails. Calls `done` before `ensure` returns if the client need not wait for a new grant. If the
   * grant table is full, calls `done` with true although addresses may lack a grant; the next answer requests
   * the grants again. `by` is the sequence number of the lookup tables. `patternsOf` returns the patterns of
   * these tables that match a name; `ensure` calls it only if a new grant may be needed.
   */
  ensure(
    kept: CachedAnswer,
    patternsOf: (key: NameKey) => readonly string[],
    by: number,
    now: number,
    done: (isInForce: boolean) => void,
  ): void {
    if (kept.addresses.length === 0) {
      done(true);
      return;
    }
    this.known.looked(kept.key, now);
    const wanted = this.#until(kept, now);
    if (kept.grantedBy !== by) {
      kept.grantedUntil = this.known.grantedUntil(kept.key, kept.addresses, by);
      if (kept.grantedUntil > 0) kept.grantedBy = by;
    }
    const isKnown = kept.grantedBy === by;
    if (isKnown && kept.grantedUntil >= Math.min(wanted, this.#latest(now) - this.#slackMs)) {
      done(true);
      return;
    }
    const patterns = isPlain(kept.key) ? patternsOf(kept.key) : [];
    if (patterns.length === 0) {
      kept.grantedBy = by;
      kept.grantedUntil = Number.POSITIVE_INFINITY;
      done(true);
      return;
    }
    const isInForce = isKnown && kept.grantedUntil > now + IN_FORCE_FOR_MS;
    if (isInForce) done(true);
    if (kept.grantRequest?.by === by) {
      if (isInForce) return;
      kept.grantRequest.waiting.push(done);
      this.granter.flushSoon();
      return;
    }
    const until = Math.min(onGrid(wanted, gridFor(wanted - now)), this.#latest(now));
    const addresses = kept.addresses.map(({ address }) => address);
    const asking = { by, waiting: isInForce ? [] : [done] };
    kept.grantRequest = asking;
    const settle = (granted: Granted): void => {
      if (kept.grantRequest === asking) kept.grantRequest = null;
      if (granted === 'all') {
        kept.grantedBy = by;
        kept.grantedUntil = until;
        this.counts.grants += addresses.length * patterns.length;
        this.known.granted(kept.key, { addresses, patterns, by }, until, now);
      } else if (granted === 'none') this.counts.refuse('not_granted');
      if (!isInForce) this.waits.add(nowMs() - now);
      for (const each of asking.waiting) each(granted !== 'none');
    };
    this.granter.grant(patterns, addresses, {
      expiryNs: monotonicNs(until),
      isAwaited: !isInForce,
      done: settle,
    });
  }

  /**
   * Returns the latest time at which a grant (permission for an address that DNS resolved) made at `now` may
   * end.
   */
  #latest(now: number): number {
    return now + this.options.maxGrantMs;
  }

  /**
   * The margin for renewals in milliseconds: the proxy does not renew a grant (permission for an address)
   * that already lasts almost as long as a renewed one would.
   */
  get #slackMs(): number {
    return Math.min(2 * GRID_MS, this.options.maxGrantMs * GRID_PART);
  }

  /**
   * Returns the time until which the addresses of the answer must be granted. All addresses of one answer get
   * the longest TTL among them, because the client may use any of the addresses until then.
   */
  #until({ addresses, storedAt }: CachedAnswer, now: number): number {
    const longest = addresses.reduce((most, { ttl }) => Math.max(most, ttl), 0);
    const left = Math.max(this.options.minGrantMs, storedAt + longest * 1_000 - now);
    return now + Math.min(left, this.options.maxGrantMs);
  }
}

/**
 * Returns the grid in milliseconds (see `GRID_MS`) for a grant of length `lifeMs`. Longer grants get a
 * coarser grid, so that the proxy does not renew the grant of a popular name for every client.
 */
function gridFor(lifeMs: number): number {
  let grid = GRID_MS;
  while (grid < GREATEST_GRID_MS && 2 * grid <= lifeMs * GRID_PART) grid *= 2;
  return grid;
}

function onGrid(time: number, grid: number): number {
  return Math.ceil(time / grid) * grid;
}
