import { GrowingBytes } from '#arrays/growing-bytes.js';
import { CONTENT } from './tls-numbers.js';

const HEADER_BYTES = 5;

export type RecordFault = 'not_tls' | 'malformed' | 'too_long';

/**
 * The longest accepted record of a server, in bytes: the limit for encrypted records (RFC 8446, 5.2). This
 * length is also accepted before encryption, because some servers send unencrypted records above 16,384
 * bytes.
 */
export const MAX_SERVER_RECORD = 16_384 + 256;

/**
 * Consecutive payload bytes of one TLS record, at least one byte. `isLast`: the record ends with this piece.
 */
export type RecordPiece = { readonly type: number; readonly data: Uint8Array; readonly isLast: boolean };

/**
 * Splits an unencrypted TLS stream into pieces of records. The division of the stream into chunks does not
 * change the sequence of records and faults. If the stream exceeds `limit` bytes, `next` returns `too_long`.
 */
export class RecordReader {
  readonly #limit: number;
  readonly #longest: number;
  readonly #wire = new GrowingBytes();
  #at = 0;
  #type = 0;
  #left = 0;

  /**
   * `limit`: the maximum length of the stream. `longest`: the maximum payload of a record. Both are in bytes.
   */
  constructor({ limit, longest }: { readonly limit: number; readonly longest: number }) {
    this.#limit = limit;
    this.#longest = longest;
  }

  /** All bytes that `push` has received so far, including the bytes that `next` has already returned. */
  get bytes(): Uint8Array {
    return this.#wire.bytes;
  }

  /** The number of stream bytes that belong to the returned pieces and their record headers. */
  get position(): number {
    return this.#at;
  }

  push(chunk: Uint8Array): void {
    this.#wire.append(chunk);
  }

  /** Returns the next piece of a record, or a fault; null if more bytes are needed. */
  next(): RecordPiece | RecordFault | null {
    const end = Math.min(this.#wire.length, this.#limit);
    if (this.#left === 0) {
      const fault = this.#header(end);
      if (fault !== null) return fault;
    }
    const from = this.#at;
    const taken = Math.min(this.#left, end - from);
    if (this.#left === 0 || taken === 0) return this.#wire.length > this.#limit ? 'too_long' : null;
    this.#at += taken;
    this.#left -= taken;
    return { type: this.#type, data: this.#wire.view(from, this.#at), isLast: this.#left === 0 };
  }

  #header(end: number): RecordFault | null {
    const from = this.#at;
    const fault = from === 0 ? 'not_tls' : 'malformed';
    if (from >= end) return null;
    const type = this.#wire.at(from);
    if (type < CONTENT.changeCipherSpec || type > CONTENT.heartbeat) return fault;
    if (from + 1 >= end) return null;
    if (this.#wire.at(from + 1) !== 3) return fault;
    if (from + HEADER_BYTES > end) return null;
    const length = (this.#wire.at(from + 3) << 8) | this.#wire.at(from + 4);
    if (length === 0 || length > this.#longest) return 'malformed';
    this.#at = from + HEADER_BYTES;
    this.#type = type;
    this.#left = length;
    return null;
  }
}
