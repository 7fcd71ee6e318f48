import { added, isNothing, type Lost, NOTHING_LOST } from './frame.js';
import { bytesOf, type Seen, sizeOf } from './seen-batch.js';

export type ReplayEntry = {
  readonly atMs: number;
  readonly seen: Seen;
  /** Losses before this entry. */
  readonly lost: Lost;
};

/** Keeps recent batches for readers that start later, limited by age and by bytes. */
export class ReplayBuffer {
  readonly keepsMs: number;
  readonly #maxBytes: number;
  #entries: ReplayEntry[] = [];
  /** The number of the first entry that is still there. Entries are numbered from 0. */
  #first = 0;
  #bytes = 0;
  /** The number of messages in removed entries. The count of the remaining messages starts there. */
  forgotten = 0;
  /** Losses before the removed entries. */
  forgottenLost: Lost = NOTHING_LOST;

  constructor(keepsMs: number, maxBytes = 32 * 1024 * 1024) {
    this.keepsMs = keepsMs;
    this.#maxBytes = maxBytes;
  }

  /** The number that the next entry will get. */
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

  /** The number of messages before this entry, and the losses before it. */
  before(number: number): { readonly count: number; readonly lost: Lost } {
    const earlier = this.#entries.slice(0, number - this.#first);
    return {
      count: earlier.reduce((sum, entry) => sum + sizeOf(entry.seen), this.forgotten),
      lost: earlier.reduce((sum, { lost }) => added(sum, lost), this.forgottenLost),
    };
  }

  /** The number of the first entry that arrived at or after this time. */
  since(ms: number): number {
    const found = this.#entries.findIndex(({ atMs }) => atMs >= ms);
    return found < 0 ? this.end : this.#first + found;
  }
}
