import type { Refusal } from './fault.js';
import { type Begin, LineScanner } from './line-scanner.js';

const MAX_HEAD_BYTES = 65_536;
const FIRST_CAPACITY = 4096;

/**
 * A head as received, and in lower case. Positions in `lines` refer to the pushed bytes: subtract `base` for
 * either text.
 */
export type RawHead = {
  readonly text: string;
  readonly lower: string;
  readonly base: number;
  readonly lines: LineScanner;
};

/** Reads heads one after the other, for any division of the bytes; `finish` interprets them. */
export abstract class HeadReader<Head> {
  /** The position in the last chunk where the returned head ended. */
  end = 0;
  readonly #lines: LineScanner;
  readonly #limit: number;
  #held: Buffer | null = null;
  #length = 0;
  #refusal: Refusal | null = null;

  constructor(begin: Begin, limit = MAX_HEAD_BYTES) {
    this.#lines = new LineScanner(begin);
    this.#limit = limit;
  }

  /** Whether a head has begun and is incomplete. */
  get isInside(): boolean {
    return this.#length > 0;
  }

  /**
   * Returns null if more bytes are needed. After a refusal, every call returns it. The result does not refer
   * to the chunk.
   */
  push(chunk: Buffer, from = 0): Head | Refusal | null {
    if (this.#refusal !== null) return this.#refusal;
    if (from === chunk.length) return null;
    const result = this.#held === null ? this.#whole(chunk, from) : this.#part(this.#held, chunk, from);
    if (result !== null && typeof result === 'object' && 'fault' in result) this.#refusal = result;
    return result;
  }

  protected abstract finish(head: RawHead): Head | Refusal;

  #whole(chunk: Buffer, from: number): Head | Refusal | null {
    const lines = this.#lines;
    lines.restart(from);
    const end = Math.min(chunk.length, from + this.#limit);
    const found = lines.scan(chunk, end);
    if (found === 'done') {
      this.end = lines.at;
      return this.#finished(chunk, from);
    }
    if (found !== null) return { fault: found };
    if (end === from + this.#limit) return { fault: 'head_too_long' };
    this.#held = Buffer.allocUnsafe(Math.max(FIRST_CAPACITY, 2 * (end - from)));
    this.#length = chunk.copy(this.#held, 0, from, end);
    lines.shift(from);
    return null;
  }

  #finished(bytes: Buffer, base: number): Head | Refusal {
    const lines = this.#lines;
    const text = bytes.toString('latin1', base, lines.at);
    // Lowered once for all names: in latin1 the positions stay the same.
    return this.finish({ text, lower: text.toLowerCase(), base, lines });
  }

  #part(before: Buffer, chunk: Buffer, from: number): Head | Refusal | null {
    const lines = this.#lines;
    const end = Math.min(chunk.length, from + this.#limit - this.#length);
    const length = this.#length + end - from;
    const held = length > before.length ? grown(before, this.#length, length) : before;
    chunk.copy(held, this.#length, from, end);
    const found = lines.scan(held, length);
    if (found === 'done') {
      this.end = from + lines.at - this.#length;
      this.#held = null;
      this.#length = 0;
      return this.#finished(held, 0);
    }
    if (found !== null) return { fault: found };
    if (length === this.#limit) return { fault: 'head_too_long' };
    this.#held = held;
    this.#length = length;
    return null;
  }
}

function grown(held: Buffer, used: number, least: number): Buffer {
  const larger = Buffer.allocUnsafe(Math.max(least, 2 * held.length));
  held.copy(larger, 0, 0, used);
  return larger;
}
