import { putU16, u16 } from '#dns/wire/bytes.js';

const PREFIX_BYTES = 2;
const FIRST_CAPACITY = 512;

/**
 * Splits a TCP stream of DNS messages (RFC 7766, 8) into messages, however TCP divides the stream into
 * chunks. A returned message may be a view of a pushed chunk. After a length prefix above `limit` bytes,
 * `tooLong` is true and all further bytes are ignored.
 */
export class FrameReader {
  readonly #limit: number;
  #buffered = new Uint8Array(0);
  #length = 0;
  #tooLong = false;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Number of stored bytes of the incomplete message, including its length prefix. */
  get pending(): number {
    return this.#length;
  }

  get tooLong(): boolean {
    return this.#tooLong;
  }

  push(chunk: Uint8Array): readonly Uint8Array[] {
    const messages: Uint8Array[] = [];
    let at = 0;
    while (at < chunk.length && !this.#tooLong) {
      if (this.#length === 0) {
        const end = this.#whole(chunk, at);
        if (end > 0) {
          messages.push(chunk.subarray(at + PREFIX_BYTES, end));
          at = end;
          continue;
        }
      }
      at = this.#hold(chunk, at, messages);
    }
    return messages;
  }

  /**
   * Returns the offset of the end of the message that begins at offset `at`. Returns 0 if the chunk does not
   * contain the whole message.
   */
  #whole(chunk: Uint8Array, at: number): number {
    if (at + PREFIX_BYTES > chunk.length) return 0;
    const length = u16(chunk, at);
    const end = at + PREFIX_BYTES + length;
    return length <= this.#limit && end <= chunk.length ? end : 0;
  }

  #hold(chunk: Uint8Array, from: number, messages: Uint8Array[]): number {
    let at = from;
    while (this.#length < PREFIX_BYTES && at < chunk.length) this.#append(chunk, at, ++at);
    if (this.#length < PREFIX_BYTES) return at;
    const length = u16(this.#buffered, 0);
    if (length > this.#limit) {
      this.#tooLong = true;
      this.#release();
      return at;
    }
    const end = Math.min(chunk.length, at + PREFIX_BYTES + length - this.#length);
    this.#append(chunk, at, end);
    if (this.#length === PREFIX_BYTES + length) {
      messages.push(this.#buffered.subarray(PREFIX_BYTES, this.#length));
      this.#release();
    }
    return end;
  }

  /**
   * Appends bytes to the incomplete message. The buffer grows with the bytes that have arrived and not with
   * the length prefix, which an attacker can choose.
   */
  #append(chunk: Uint8Array, from: number, to: number): void {
    const length = this.#length + to - from;
    if (length > this.#buffered.length) {
      const grown = new Uint8Array(Math.max(FIRST_CAPACITY, length, 2 * this.#buffered.length));
      grown.set(this.#buffered.subarray(0, this.#length));
      this.#buffered = grown;
    }
    this.#buffered.set(chunk.subarray(from, to), this.#length);
    this.#length = length;
  }

  #release(): void {
    this.#buffered = new Uint8Array(0);
    this.#length = 0;
  }
}

/**
 * Returns the message with its two-byte length prefix.
 * @throws RangeError for a message longer than 65,535 bytes.
 */
export function framed(message: Uint8Array): Uint8Array {
  if (message.length > 0xffff)
    throw new RangeError(`frame a DNS message for TCP: ${message.length} bytes are more than 65,535`);
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  putU16(frame, 0, message.length);
  frame.set(message, PREFIX_BYTES);
  return frame;
}
