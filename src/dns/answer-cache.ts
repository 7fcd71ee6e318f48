import { LRUCache } from 'lru-cache';
import type { EdnsOption } from '#dns/wire/edns.js';
import type { NameKey } from './wire/name.js';
import type { Template } from './wire/response.js';

/** An address that the rebind protection removed. `reason`: text for a finding. */
export type RemovedAddress = { readonly address: number; readonly reason: string };

/** A cached answer. Times are values of `nowMs`. */
export type CachedAnswer = {
  readonly template: Template;
  readonly key: NameKey;
  /** The addresses that the queried name resolves to, each with its TTL in seconds at arrival. */
  readonly addresses: readonly { readonly address: number; readonly ttl: number }[];
  readonly storedAt: number;
  readonly freshUntil: number;
  /** The Extended DNS Error that reports removed records; null: no record was removed. */
  readonly filtered: EdnsOption | null;
  /** The first addresses that the rebind protection removed from the answer, and why. */
  readonly rebound: readonly RemovedAddress[];
  /**
   * The number of the lookups that granted these addresses last, and the end of that grant; see `Learning`.
   */
  grantedBy: number;
  grantedUntil: number;
  /** The grant in progress: the number of its lookups, and the callbacks that wait for it. */
  asking: { readonly by: number; readonly waiting: ((isInForce: boolean) => void)[] } | null;
};

/**
 * Bytes of an entry besides its message: the key, the objects, the map's share. With 100,000 entries, V8 used
 * 1,186 more bytes for each.
 */
const OVERHEAD_BYTES = 1_200;
/** Two numbers in growing arrays. */
const TTL_BYTES = 24;
const ADDRESS_BYTES = 48;

/** Answers by question, within a limit of bytes. The least recently used answers are removed first. */
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

  /** Returns undefined if the question has no answer or an expired one. */
  fresh(question: string, now: number): CachedAnswer | undefined {
    const kept = this.#answers.get(question);
    if (kept === undefined || kept.freshUntil > now) return kept;
    if (kept.freshUntil + this.staleMs <= now) this.#answers.delete(question);
    return undefined;
  }

  /** Returns an answer that may have expired, for use when no upstream answers (RFC 8767). */
  stale(question: string, now: number): CachedAnswer | undefined {
    if (this.staleMs === 0) return undefined;
    const kept = this.#answers.get(question);
    return kept !== undefined && kept.freshUntil + this.staleMs > now ? kept : undefined;
  }

  keep(question: string, kept: CachedAnswer): void {
    this.#answers.set(question, kept);
  }
}
