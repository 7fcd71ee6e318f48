import { LRUCache } from 'lru-cache';
import type { KnownName } from '#contracts/known-name.js';
import { wallMs } from './clock.js';
import { type NameKey, presentationOf } from './wire/name.js';

const CAPACITY = 200_000;
/** Of all names together. */
const ADDRESSES = 1_000_000;
const SECOND = 1_000;

type Seen = {
  /** Until when they are granted, in seconds: small numbers, which take no memory of their own. Keys are 32 bits, signed. */
  readonly addresses: Map<number, number>;
  patterns: readonly string[];
  /** Which of them were granted by the lookups of number `by`. */
  readonly current: Set<number>;
  by: number;
  lastSeen: number;
};

/** Names that addresses were granted for, to be looked at (D30). Times are of `nowMs`. */
export class KnownNames {
  readonly #seen: LRUCache<NameKey, Seen>;

  /** `onNamed` is called with each address that was not granted for a name before. */
  constructor(
    private readonly onNamed: (address: number, key: NameKey) => void,
    maxSize = ADDRESSES,
  ) {
    this.#seen = new LRUCache({ max: CAPACITY, maxSize, sizeCalculation: ({ addresses }) => addresses.size + 1 });
  }

  /** All addresses are granted to all patterns, which match the name by the lookups of this number. */
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
    // Written in place: what is renewed all the time is nothing for the garbage collector.
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
    // Anew, or its size would stay as it was.
    this.#seen.delete(key);
    this.#seen.set(key, seen);
  }

  /** Until when all these addresses are granted by the lookups of this number; 0 where they are not. */
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

  /** Those that are granted something now. */
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
