import type { Headers } from '#contracts/http-facts.js';
import { ChunkReader } from './chunks.js';
import type { HttpFault } from './fault.js';
import type { Framing } from './fields.js';

const NOTHING: readonly Buffer[] = [];

/** Finds the data of a body, and its end. Data are views of what was pushed. */
export class BodyReader {
  /** Where, in the chunk that was pushed last, the body ended or a fault stands. */
  end = 0;
  readonly #chunks: ChunkReader | null;
  #left: number;

  /** `head`: see `TrailerReader`. */
  constructor(framing: Framing, head: Headers = []) {
    this.#chunks = framing === 'chunked' ? new ChunkReader(head) : null;
    this.#left = typeof framing === 'number' ? framing : Number.POSITIVE_INFINITY;
  }

  get isComplete(): boolean {
    return this.#chunks === null ? this.#left === 0 : this.#chunks.isComplete;
  }

  get fault(): HttpFault | null {
    return this.#chunks === null ? null : this.#chunks.fault;
  }

  /** Of a body in chunks that is complete. */
  get trailers(): Headers {
    return this.#chunks === null ? [] : this.#chunks.trailers;
  }

  push(chunk: Buffer, from = 0): readonly Buffer[] {
    if (this.#chunks !== null) {
      const data: Buffer[] = [];
      this.#chunks.push(chunk, from, data);
      this.end = this.#chunks.end;
      return data;
    }
    this.end = Math.min(chunk.length, from + this.#left);
    this.#left -= this.end - from;
    if (this.end === from) return NOTHING;
    return [from === 0 && this.end === chunk.length ? chunk : chunk.subarray(from, this.end)];
  }

  /** The connection ended: whether the body is complete now. */
  finish(): boolean {
    if (this.#left === Number.POSITIVE_INFINITY && this.#chunks === null) this.#left = 0;
    return this.isComplete;
  }
}
