import type { CachedAnswer } from './answer-cache.js';
import { monotonicNs, nowMs } from './clock.js';
import type { Counts } from './dns-counts.js';
import type { DnsOptions } from './dns-options.js';
import type { Granted, Granter } from './granter.js';
import type { KnownNames } from './known-names.js';
import type { RecentWaits } from './recent-waits.js';
import { isPlain, type NameKey } from './wire/name.js';

/** If a grant remains in force for longer than this, its renewal does not delay the answer. */
const IN_FORCE_FOR_MS = 1_000;
/**
 * Grants end at multiples of this grid. The grid may grow to 8 s, as long as it is at most a fifteenth of the
 * grant's life.
 */
const GRID_MS = 1_000;
const GRID_PART = 1 / 15;
const GREATEST_GRID_MS = 8_000;

/** Grants the addresses of answers to the patterns that match the queried name (D12). */
export class Learning {
  constructor(
    private readonly options: Pick<DnsOptions, 'minGrantMs' | 'maxGrantMs'>,
    private readonly granter: Granter,
    private readonly known: KnownNames,
    private readonly counts: Counts,
    private readonly waits: RecentWaits,
  ) {}

  /**
   * Calls back at once with true if the addresses of the answer are granted, or need no grant. Otherwise
   * calls back when they are granted, or with false if they cannot be. If the table had room for some of them
   * only, the next answer requests them again. `patternsOf` finds the patterns that match the name in the
   * lookups numbered `by`; it is called only if that is not known yet.
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
    if (kept.asking?.by === by) {
      if (isInForce) return;
      kept.asking.waiting.push(done);
      this.granter.hurry();
      return;
    }
    const until = Math.min(onGrid(wanted, gridFor(wanted - now)), this.#latest(now));
    const addresses = kept.addresses.map(({ address }) => address);
    const asking = { by, waiting: isInForce ? [] : [done] };
    kept.asking = asking;
    const settle = (granted: Granted): void => {
      if (kept.asking === asking) kept.asking = null;
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

  /** The latest end of a grant made now. */
  #latest(now: number): number {
    return now + this.options.maxGrantMs;
  }

  /** A grant that ends within this time before the latest possible end is not renewed. */
  get #slackMs(): number {
    return Math.min(2 * GRID_MS, this.options.maxGrantMs * GRID_PART);
  }

  /**
   * All addresses of one answer are granted as long as the one with the longest TTL: the client may use any
   * of them.
   */
  #until({ addresses, storedAt }: CachedAnswer, now: number): number {
    const longest = addresses.reduce((most, { ttl }) => Math.max(most, ttl), 0);
    const left = Math.max(this.options.minGrantMs, storedAt + longest * 1_000 - now);
    return now + Math.min(left, this.options.maxGrantMs);
  }
}

/** A coarser grid for longer grants, so that a popular name is not granted again for every client. */
function gridFor(lifeMs: number): number {
  let grid = GRID_MS;
  while (grid < GREATEST_GRID_MS && 2 * grid <= lifeMs * GRID_PART) grid *= 2;
  return grid;
}

function onGrid(time: number, grid: number): number {
  return Math.ceil(time / grid) * grid;
}
