import type { ReplayBuffer } from './answer-cache.js';
import { monotonicNs, nowMs } from './clock.js';
import type { Counts } from './dns-counts.js';
import type { DnsOptions } from './dns-options.js';
import type { Granted, Granter } from './granter.js';
import type { KnownNames } from './known-names.js';
import type { RecentWaits } from './recent-waits.js';
import { isPlain, type NameKey } from './wire/name.js';

/** A grant that lives so much longer than this need not be in force anew before an answer leaves. */
const IN_FORCE_FOR_MS = 1_000;
/** Grants end at whole multiples of this, or of up to 8 s where that is no more than a fifteenth of their life. */
const GRID_MS = 1_000;
const GRID_PART = 1 / 15;
const GREATEST_GRID_MS = 8_000;

/** Has the addresses of answers granted to the patterns that match the asked name (D12). */
export class Learning {
  constructor(
    private readonly options: Pick<DnsOptions, 'minGrantMs' | 'maxGrantMs'>,
    private readonly granter: Granter,
    private readonly known: KnownNames,
    private readonly counts: Counts,
    private readonly waits: RecentWaits,
  ) {}

  /**
   * Calls back at once with true where what the answer leads to is in force, or need not be; else once it is, or with
   * false where it is not to be had. Where there was no room for all of it, the next answer asks again. `patternsOf` finds
   * those that match the name by the lookups of this number, where that is not known yet.
   */
  ensure(
    kept: ReplayBuffer,
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

  /** No grant that is made now may end later. */
  #latest(now: number): number {
    return now + this.options.maxGrantMs;
  }

  /** A grant that ends so much before the latest end is as good as one that ends then. */
  get #slackMs(): number {
    return Math.min(2 * GRID_MS, this.options.maxGrantMs * GRID_PART);
  }

  /** All addresses of one answer live as long as the one that lives longest: the client may use any of them. */
  #until({ addresses, storedAt }: ReplayBuffer, now: number): number {
    const longest = addresses.reduce((most, { ttl }) => Math.max(most, ttl), 0);
    const left = Math.max(this.options.minGrantMs, storedAt + longest * 1_000 - now);
    return now + Math.min(left, this.options.maxGrantMs);
  }
}

/** So that a name that everybody asks for is not granted anew for each of them. */
function gridFor(lifeMs: number): number {
  let grid = GRID_MS;
  while (grid < GREATEST_GRID_MS && 2 * grid <= lifeMs * GRID_PART) grid *= 2;
  return grid;
}

function onGrid(time: number, grid: number): number {
  return Math.ceil(time / grid) * grid;
}
