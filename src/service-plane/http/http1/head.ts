import type { Refusal } from '#service-plane/http/fault.js';
import { type Begin, LineScanner } from './line-scanner.js';

const MAX_HEAD_BYTES = 65_536;
const FIRST_CAPACITY = 4096;

/**
 * A message head. `text`: the head as received; `lower`: the head in lower case. The positions in `lines` are
 * positions in a buffer where the head begins at `base`. Subtract `base` from a position to use the position
 * in `text` or `lower`.
 */
export type RawHead = {
  readonly text: string;
  readonly lower: string;
  readonly base: number;
  readonly lines: LineScanner;
};

/**
 * Reads message heads one after another. The result does not depend on the division of the bytes into chunks.
 * Subclasses implement `finish`, which interprets a complete head.
 */
export abstract class HeadReader<Head> {
  /** The position in the last pushed chunk where the returned head ended. */
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

  /** True if the reader has received a part of a head, but not the whole head. */
  get isInside(): boolean {
    return this.#length > 0;
  }

  /**
   * Returns a head or a refusal; null if more bytes are needed. After a refusal, every call returns the same
   * refusal. The result contains copies, and no views of `chunk`.
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
    // Convert the whole head to lower case at once, which is faster than field by field. Positions do not
    // change, because each latin1 character stays one character.
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
