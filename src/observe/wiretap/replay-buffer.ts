import { added, isNothing, type Lost, NOTHING_LOST } from './frame.js';
import { bytesOf, type Seen, sizeOf } from './seen-batch.js';

export type ReplayEntry = {
  readonly atMs: number;
  readonly seen: Seen;
  /** Events that were lost between the previous replay entry and this replay entry. */
  readonly lost: Lost;
};

/**
 * Keeps recent batches of events for wiretap readers that connect later. The buffer is limited by age and by
 * bytes.
 */
export class ReplayBuffer {
  readonly keepsMs: number;
  readonly #maxBytes: number;
  #entries: ReplayEntry[] = [];
  /**
   * The number of the oldest replay entry in the buffer. Entries are numbered in the order of arrival; the
   * first entry has the number 0.
   */
  #first = 0;
  #bytes = 0;
  /**
   * The number of messages in all removed replay entries. `before` adds this number to the number of messages
   * that are still in the buffer.
   */
  forgotten = 0;
  /** The sum of `lost` of all removed replay entries. */
  forgottenLost: Lost = NOTHING_LOST;

  constructor(keepsMs: number, maxBytes = 32 * 1024 * 1024) {
    this.keepsMs = keepsMs;
    this.#maxBytes = maxBytes;
  }

  /** The number that the next added replay entry gets. */
  get end(): number {
    return this.#first + this.#entries.length;
  }

  get first(): number {
    return this.#first;
  }

  add(entry: ReplayEntry): void {
    if (this.keepsMs === 0 || (sizeOf(entry.seen) === 0 && isNothing(entry.lost))) return;
    this.#entries.push(entry);
    this.#bytes += bytesOf(entry.seen);
    let dropped = 0;
    for (const oldest of this.#entries) {
      if (oldest.atMs >= entry.atMs - this.keepsMs && this.#bytes <= this.#maxBytes) break;
      this.#bytes -= bytesOf(oldest.seen);
      this.forgotten += sizeOf(oldest.seen);
      this.forgottenLost = added(this.forgottenLost, oldest.lost);
      dropped++;
    }
    if (dropped === 0) return;
    this.#entries = this.#entries.slice(dropped);
    this.#first += dropped;
  }

  at(number: number): ReplayEntry | undefined {
    return this.#entries[number - this.#first];
  }

  /**
   * Returns how many messages precede the replay entry with this number, and how many events were lost before
   * these messages or between them. Removed entries count as well.
   */
  before(number: number): { readonly count: number; readonly lost: Lost } {
    const earlier = this.#entries.slice(0, number - this.#first);
    return {
      count: earlier.reduce((sum, entry) => sum + sizeOf(entry.seen), this.forgotten),
      lost: earlier.reduce((sum, { lost }) => added(sum, lost), this.forgottenLost),
    };
  }

  /**
   * Returns the number of the first replay entry that arrived at or after `ms`, in milliseconds since 1970.
   * Returns `end` if there is no such entry.
   */
  since(ms: number): number {
    const found = this.#entries.findIndex(({ atMs }) => atMs >= ms);
    return found < 0 ? this.end : this.#first + found;
  }
}
