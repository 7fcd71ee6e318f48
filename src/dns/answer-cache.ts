import { LRUCache } from 'lru-cache';
import type { EdnsOption } from '#dns/wire/edns.js';
import type { NameKey } from './wire/name.js';
import type { Template } from './wire/response.js';

/** An address that the DNS rebinding protection removed from an answer. `reason` is a text for a finding. */
export type RemovedAddress = { readonly address: number; readonly reason: string };

/**
 * A cached DNS answer. `storedAt`, `freshUntil` and `grantedUntil` are milliseconds as returned by `nowMs`.
 */
export type CachedAnswer = {
  readonly template: Template;
  readonly key: NameKey;
  /** The addresses that the queried name resolves to. `ttl` is in seconds, as in the upstream's answer. */
  readonly addresses: readonly { readonly address: number; readonly ttl: number }[];
  readonly storedAt: number;
  readonly freshUntil: number;
  /** The Extended DNS Error that reports removed records to clients. Null if no record was removed. */
  readonly filtered: EdnsOption | null;
  /** The first addresses that the DNS rebinding protection removed from this answer, each with its reason. */
  readonly rebound: readonly RemovedAddress[];
  /**
   * `grantedBy` is the number of the lookup tables by which `addresses` were last granted. `grantedUntil` is
   * the time when that grant ends. `Learning` writes `grantedBy` and `grantedUntil`.
   */
  grantedBy: number;
  grantedUntil: number;
  /**
   * The grant request in progress; null if there is no request in progress. `by` is the number of the lookup
   * tables of the request. `waiting` are the callbacks that run when the request ends.
   */
  asking: { readonly by: number; readonly waiting: ((isInForce: boolean) => void)[] } | null;
};

/**
 * Bytes that a cached answer occupies besides its message: the cache key, the objects, and internal memory of
 * the map. With 100,000 answers, V8 used 1,186 such bytes per answer.
 */
const OVERHEAD_BYTES = 1_200;
/** Bytes for one TTL of a cached answer: the TTL and its offset are two numbers in growing arrays. */
const TTL_BYTES = 24;
const ADDRESS_BYTES = 48;

/**
 * Cached answers by question, limited to `capacityBytes` bytes. At the limit, the cache removes the least
 * recently used answers.
 */
export class AnswerCache {
  readonly #answers: LRUCache<string, CachedAnswer>;

  constructor(
    capacityBytes: number,
    private readonly staleMs: number,
  ) {
    this.#answers = new LRUCache({
      maxSize: Math.max(1, capacityBytes),
      sizeCalculation: ({ template: { bytes, ttls }, addresses }) =>
        OVERHEAD_BYTES + bytes.length + TTL_BYTES * ttls.length + ADDRESS_BYTES * addresses.length,
    });
  }

  get entries(): number {
    return this.#answers.size;
  }

  get bytes(): number {
    return this.#answers.calculatedSize;
  }

  /** Returns undefined if the cache has no answer to the question, or only an expired answer. */
  fresh(question: string, now: number): CachedAnswer | undefined {
    const kept = this.#answers.get(question);
    if (kept === undefined || kept.freshUntil > now) return kept;
    if (kept.freshUntil + this.staleMs <= now) this.#answers.delete(question);
    return undefined;
  }

  /**
   * Returns the answer to the question even if the answer expired less than `staleMs` ago. Serves clients
   * while no upstream answers (RFC 8767).
   */
  stale(question: string, now: number): CachedAnswer | undefined {
    if (this.staleMs === 0) return undefined;
    const kept = this.#answers.get(question);
    return kept !== undefined && kept.freshUntil + this.staleMs > now ? kept : undefined;
  }

  keep(question: string, kept: CachedAnswer): void {
    this.#answers.set(question, kept);
  }
}
