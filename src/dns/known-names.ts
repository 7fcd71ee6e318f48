import { LRUCache } from 'lru-cache';
import type { KnownName } from '#contracts/known-name.js';
import { wallMs } from './clock.js';
import { type NameKey, presentationOf } from './wire/name.js';

const CAPACITY = 200_000;
/** Of all names together. */
const ADDRESSES = 1_000_000;
const SECOND = 1_000;

type Seen = {
  /**
   * The end of each grant in seconds: small integers, which V8 stores without an allocation. Keys are signed
   * 32-bit addresses.
   */
  readonly addresses: Map<number, number>;
  patterns: readonly string[];
  /** The addresses that the lookups numbered `by` granted. */
  readonly current: Set<number>;
  by: number;
  lastSeen: number;
};

/** Names that addresses were granted for, for the listing of names (D30). Times are values of `nowMs`. */
export class KnownNames {
  readonly #seen: LRUCache<NameKey, Seen>;

  /** `onNamed` is called with each address that was not granted for a name before. */
  constructor(
    private readonly onNamed: (address: number, key: NameKey) => void,
    maxSize = ADDRESSES,
  ) {
    this.#seen = new LRUCache({ max: CAPACITY, maxSize, sizeCalculation: ({ addresses }) => addresses.size + 1 });
  }

  /**
   * Records that all addresses are granted to all patterns. The patterns match the name in the lookups
   * numbered `by`.
   */
  granted(
    key: NameKey,
    {
      addresses,
      patterns,
      by,
    }: { readonly addresses: readonly number[]; readonly patterns: readonly string[]; readonly by: number },
    until: number,
    now: number,
  ): void {
    const before = this.#seen.get(key);
    // Updated in place: frequent renewals would otherwise burden the garbage collector.
    const seen: Seen = before ?? { addresses: new Map(), current: new Set(), patterns, by, lastSeen: now };
    const size = seen.addresses.size;
    if (seen.by !== by) seen.current.clear();
    seen.by = by;
    seen.patterns = patterns;
    seen.lastSeen = now;
    for (const [address, expiry] of seen.addresses) {
      if (expiry * SECOND > now) continue;
      seen.addresses.delete(address);
      seen.current.delete(address);
    }
    for (const address of addresses) {
      if (!seen.addresses.has(address | 0)) this.onNamed(address, key);
      const known = seen.current.has(address | 0) ? (seen.addresses.get(address | 0) ?? 0) : 0;
      seen.addresses.set(address | 0, Math.max(Math.floor(until / SECOND), known));
      seen.current.add(address | 0);
    }
    if (before !== undefined && seen.addresses.size === size) return;
    // Inserted again: the cache computes the size of an entry only at insertion.
    this.#seen.delete(key);
    this.#seen.set(key, seen);
  }

  /** Returns until when the lookups numbered `by` grant all these addresses; 0 if they do not. */
  grantedUntil(key: NameKey, addresses: readonly { readonly address: number }[], by: number): number {
    const seen = this.#seen.get(key);
    if (seen === undefined || seen.by !== by) return 0;
    let least = Number.POSITIVE_INFINITY;
    for (const { address } of addresses) {
      if (!seen.current.has(address | 0)) return 0;
      least = Math.min(least, seen.addresses.get(address | 0) ?? 0);
    }
    return least * SECOND;
  }

  looked(key: NameKey, now: number): void {
    const seen = this.#seen.get(key);
    if (seen !== undefined) seen.lastSeen = now;
  }

  /** Lists names with at least one grant in force. */
  list(now: number): readonly KnownName[] {
    const names: KnownName[] = [];
    for (const [key, { addresses, patterns, lastSeen }] of this.#seen.entries()) {
      const live = [...addresses].filter(([, expiry]) => expiry * SECOND > now);
      if (live.length === 0) continue;
      names.push({
        hostname: presentationOf(key),
        addresses: live.map(([address]) => address >>> 0).sort((one, other) => one - other),
        patterns,
        expiresAtMs: wallMs(SECOND * Math.max(...live.map(([, expiry]) => expiry))),
        lastSeenMs: wallMs(lastSeen),
      });
    }
    return names;
  }
}
