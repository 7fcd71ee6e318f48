import { LRUCache } from 'lru-cache';
import { largest } from '#arrays/extremes.js';
import type { KnownName } from '#contracts/dns/seen-lookup.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { wallMs } from '#dns/clock.js';
import { type NameKey, presentationOf } from '#dns/wire/name.js';

const CAPACITY = 200_000;
/**
 * The limit of the number of names plus the number of their addresses. At this limit, or at `CAPACITY` names,
 * the list loses the least recently used names.
 */
const ADDRESSES = 1_000_000;
const SECOND = 1_000;

/**
 * An address as the key of a map. An IPv4 address is a signed 32-bit integer, because V8 stores such integers
 * in a map without an allocation. An IPv6 address is a text, because V8 hashes only the lowest 64 bits of a
 * bigint, which a sender of answers chooses.
 */
type AddressKey = number | string;
const keyOfAddress = (address: Address): AddressKey =>
  typeof address === 'number' ? address | 0 : address.toString(16);
const addressOfKey = (key: AddressKey): Address => (typeof key === 'number' ? key >>> 0 : BigInt(`0x${key}`));

type Seen = {
  /** Maps an address to the time when its grant ends, in whole seconds. */
  readonly addresses: Map<AddressKey, number>;
  patterns: readonly string[];
  /**
   * The addresses that were granted under the lookup tables (the policy for DNS names) with the number `by`.
   */
  readonly current: Set<AddressKey>;
  by: number;
  lastSeen: number;
};

/**
 * Names for which the proxy granted addresses, for the list of names in the API (D30). All time parameters
 * are times of the clock `nowMs`, in milliseconds.
 */
export class KnownNames {
  readonly #seen: LRUCache<NameKey, Seen>;

  /** `onNamed` is called for each granted address for which the name has no unexpired grant yet. */
  constructor(
    private readonly onNamed: (address: Address, key: NameKey) => void,
    maxSize = ADDRESSES,
  ) {
    this.#seen = new LRUCache({ max: CAPACITY, maxSize, sizeCalculation: ({ addresses }) => addresses.size + 1 });
  }

  /**
   * Records that all `addresses` of the name `key` are granted to all hostname `patterns` until `until`. The
   * patterns match the name in the lookup tables (the policy for DNS names) with the number `by`.
   */
  granted(
    key: NameKey,
    {
      addresses,
      patterns,
      by,
    }: { readonly addresses: readonly Address[]; readonly patterns: readonly string[]; readonly by: number },
    until: number,
    now: number,
  ): void {
    const before = this.#seen.get(key);
    // Update the existing object instead of a copy: grants are renewed often, and copies would burden the
    // garbage collector.
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
      const at = keyOfAddress(address);
      if (!seen.addresses.has(at)) this.onNamed(address, key);
      const known = seen.current.has(at) ? (seen.addresses.get(at) ?? 0) : 0;
      seen.addresses.set(at, Math.max(Math.floor(until / SECOND), known));
      seen.current.add(at);
    }
    if (before !== undefined && seen.addresses.size === size) return;
    // Delete the name and insert it again: the cache computes the size of a value only at insertion.
    this.#seen.delete(key);
    this.#seen.set(key, seen);
  }

  /**
   * Returns the time until which all these addresses are granted under the lookup tables (the policy for DNS
   * names) with the number `by`. Returns 0 if an address has no such grant.
   */
  grantedUntil(key: NameKey, addresses: readonly { readonly address: Address }[], by: number): number {
    const seen = this.#seen.get(key);
    if (seen === undefined || seen.by !== by) return 0;
    let least = Number.POSITIVE_INFINITY;
    for (const { address } of addresses) {
      const at = keyOfAddress(address);
      if (!seen.current.has(at)) return 0;
      least = Math.min(least, seen.addresses.get(at) ?? 0);
    }
    return least * SECOND;
  }

  looked(key: NameKey, now: number): void {
    const seen = this.#seen.get(key);
    if (seen !== undefined) seen.lastSeen = now;
  }

  /** Lists the names that have at least one grant in force. */
  list(now: number): readonly KnownName[] {
    const names: KnownName[] = [];
    for (const [key, { addresses, patterns, lastSeen }] of this.#seen.entries()) {
      const live = [...addresses].filter(([, expiry]) => expiry * SECOND > now);
      if (live.length === 0) continue;
      names.push({
        hostname: presentationOf(key),
        addresses: live.map(([address]) => addressOfKey(address)).sort(byFamilyAndAddress),
        patterns,
        expiresAtMs: wallMs(SECOND * largest(live.map(([, expiry]) => expiry))),
        lastSeenMs: wallMs(lastSeen),
      });
    }
    return names;
  }
}

function byFamilyAndAddress(one: Address, other: Address): number {
  if (typeof one !== typeof other) return typeof one === 'number' ? -1 : 1;
  return one < other ? -1 : one > other ? 1 : 0;
}
