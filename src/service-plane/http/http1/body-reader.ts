import type { Headers } from '#contracts/service-plane/http-facts.js';
import type { HttpFault } from '#service-plane/http/fault.js';
import type { Framing } from '#service-plane/http/fields.js';
import { ChunkReader } from './chunks.js';

const NOTHING: readonly Buffer[] = [];

/** Finds the data and the end of an HTTP/1.1 body. The returned buffers are views of the pushed chunks. */
export class BodyReader {
  /** The position in the last pushed chunk where the body ended or a fault was found. */
  end = 0;
  readonly #chunks: ChunkReader | null;
  #left: number;

  /**
   * `head`: the fields of the request. A trailer name that differs from one of these field names only in `_`
   * and `-` is a fault. For a response, `head` is empty.
   */
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

  /** The trailers of a chunked body; empty before the body is complete. */
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

  /** Tells the reader that the connection has ended. Returns true if the body is complete. */
  finish(): boolean {
    if (this.#left === Number.POSITIVE_INFINITY && this.#chunks === null) this.#left = 0;
    return this.isComplete;
  }
}
