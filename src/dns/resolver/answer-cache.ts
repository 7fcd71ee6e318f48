import { LRUCache } from 'lru-cache';
import type { Address } from '#contracts/policy/policy-model.js';
import type { EdnsOption } from '#dns/wire/message/edns.js';
import type { Template } from '#dns/wire/message/response.js';
import type { NameKey } from '#dns/wire/name.js';

/**
 * An address that the DNS rebinding protection removed from an answer. `reason` is a text for a finding.
 */
export type RemovedAddress = { readonly address: Address; readonly reason: string };

/**
 * A cached DNS answer. `storedAt`, `freshUntil` and `grantedUntil` are times of the clock `nowMs`, in
 * milliseconds.
 */
export type CachedAnswer = {
  readonly template: Template;
  readonly key: NameKey;
  /**
   * The addresses that the queried name resolves to. `ttl`: the least TTL, in seconds, of the A or AAAA
   * record and of the CNAME records that lead to this record.
   */
  readonly addresses: readonly { readonly address: Address; readonly ttl: number }[];
  readonly storedAt: number;
  readonly freshUntil: number;
  /**
   * The Extended DNS Error that tells clients which records the proxy removed or changed. Null if the proxy
   * removed and changed no record.
   */
  readonly filtered: EdnsOption | null;
  /**
   * At most 8 of the addresses that the DNS rebinding protection removed from this answer, each with its
   * reason.
   */
  readonly rebound: readonly RemovedAddress[];
  /**
   * `grantedBy`: the sequence number of the lookup tables (the policy for DNS names) under which the proxy
   * last granted `addresses`. `grantedUntil`: the time when that grant ends. `AnswerGrants` writes both
   * fields.
   */
  grantedBy: number;
  grantedUntil: number;
  /**
   * The grant request in progress; null if there is none. `by`: the sequence number of the lookup tables (the
   * policy for DNS names) with which the request was made. `waiting`: the callbacks of the clients that wait
   * for the end of the request.
   */
  grantRequest: { readonly by: number; readonly waiting: ((isInForce: boolean) => void)[] } | null;
};

/**
 * The estimated number of bytes that a cached answer occupies besides its message, TTLs and addresses: the
 * cache key, the objects, and internal memory of the map. In a measurement with 100,000 answers, V8 used
 * 1,186 such bytes per answer.
 */
const OVERHEAD_BYTES = 1_200;
/**
 * Bytes for one TTL of a cached answer. The TTL and its offset are stored in two arrays, which V8 allocates
 * with spare room.
 */
const TTL_BYTES = 24;
const ADDRESS_BYTES = 48;

/**
 * A cache of answers by question. If the estimated size of all answers exceeds `capacityBytes` bytes, the
 * cache removes the least recently used answers.
 */
export class AnswerCache {
  #answers: LRUCache<string, CachedAnswer>;

  constructor(
    private capacityBytes: number,
    private staleMs: number,
  ) {
    this.#answers = answersOf(capacityBytes);
  }

  /** Changes both limits. With a smaller capacity, the least recently used answers are removed. */
  change(capacityBytes: number, staleMs: number): void {
    this.staleMs = staleMs;
    if (capacityBytes === this.capacityBytes) return;
    this.capacityBytes = capacityBytes;
    const answers = answersOf(capacityBytes);
    answers.load(this.#answers.dump());
    this.#answers = answers;
  }

  clear(): void {
    this.#answers.clear();
  }

  get entries(): number {
    return this.#answers.size;
  }

  get bytes(): number {
    return this.#answers.calculatedSize;
  }

  /**
   * Returns the cached answer to a question; undefined if the cache has none, or only an expired answer.
   */
  fresh(question: string, now: number): CachedAnswer | undefined {
    const kept = this.#answers.get(question);
    if (kept === undefined || kept.freshUntil > now) return kept;
    if (kept.freshUntil + this.staleMs <= now) this.#answers.delete(question);
    return undefined;
  }

  /**
   * Returns the answer to the question if the answer is fresh, or expired less than `staleMs` ago. If
   * `staleMs` is 0, always returns undefined. The resolver sends such an answer if the upstreams return no
   * answer, or an error other than NXDOMAIN (RFC 8767).
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

function answersOf(capacityBytes: number): LRUCache<string, CachedAnswer> {
  return new LRUCache({
    maxSize: Math.max(1, capacityBytes),
    sizeCalculation: ({ template: { bytes, ttls }, addresses }) =>
      OVERHEAD_BYTES + bytes.length + TTL_BYTES * ttls.length + ADDRESS_BYTES * addresses.length,
  });
}
