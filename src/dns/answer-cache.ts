import { LRUCache } from 'lru-cache';
import type { EdnsOption } from '#dns/wire/edns.js';
import type { NameKey } from './wire/name.js';
import type { Template } from './wire/response.js';

/** `reason`: words for a finding. */
export type Rebound = { readonly address: number; readonly reason: string };

/** An answer as it is kept. Times are of `nowMs`. */
export type ReplayBuffer = {
  readonly template: Template;
  readonly key: NameKey;
  /** What the asked name leads to, each with its life in seconds when it came. */
  readonly addresses: readonly { readonly address: number; readonly ttl: number }[];
  readonly storedAt: number;
  readonly freshUntil: number;
  /** The text that reports removed records; null: none was removed. */
  readonly filtered: EdnsOption | null;
  /** Addresses that the rebind protection left out of it, and why; the first few. */
  readonly rebound: readonly Rebound[];
  /** By which lookups its addresses were granted last, and until when; see `Learning`. */
  grantedBy: number;
  grantedUntil: number;
  /** The grant that is on its way: by which lookups, and who waits for it. */
  asking: { readonly by: number; readonly waiting: ((isInForce: boolean) => void)[] } | null;
};

/** Of an entry, besides its message: the key, the objects, what the map needs. With 100,000 of them V8 had 1,186 more in use for each. */
const OVERHEAD_BYTES = 1_200;
/** Two numbers in arrays that grow. */
const TTL_BYTES = 24;
const ADDRESS_BYTES = 48;

/** Answers by question, within so many bytes; the longest unused go first. */
export class AnswerCache {
  readonly #kept: LRUCache<string, ReplayBuffer>;

  constructor(
    capacityBytes: number,
    private readonly staleMs: number,
  ) {
    this.#kept = new LRUCache({
      maxSize: Math.max(1, capacityBytes),
      sizeCalculation: ({ template: { bytes, ttls }, addresses }) =>
        OVERHEAD_BYTES + bytes.length + TTL_BYTES * ttls.length + ADDRESS_BYTES * addresses.length,
    });
  }

  get entries(): number {
    return this.#kept.size;
  }

  get bytes(): number {
    return this.#kept.calculatedSize;
  }

  /** Undefined where there is none, or one that is past its time. */
  fresh(question: string, now: number): ReplayBuffer | undefined {
    const kept = this.#kept.get(question);
    if (kept === undefined || kept.freshUntil > now) return kept;
    if (kept.freshUntil + this.staleMs <= now) this.#kept.delete(question);
    return undefined;
  }

  /** One that may be past its time, for where nobody has a better one (RFC 8767). */
  stale(question: string, now: number): ReplayBuffer | undefined {
    if (this.staleMs === 0) return undefined;
    const kept = this.#kept.get(question);
    return kept !== undefined && kept.freshUntil + this.staleMs > now ? kept : undefined;
  }

  keep(question: string, kept: ReplayBuffer): void {
    this.#kept.set(question, kept);
  }
}
