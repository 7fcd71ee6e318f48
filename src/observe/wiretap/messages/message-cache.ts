import { i32At, itemAt } from '#arrays/read.js';
import { type Seen, sizeOf } from '#observe/wiretap/seen-batch.js';
import { ByteWriter } from './byte-writer.js';
import type { MessageWriter } from './message-writer.js';

const OPEN = 0x5b;
const COMMA = 0x2c;
const CLOSE = 0x5d;

/**
 * The encoded messages of one batch of events. A message is encoded when a channel first needs it, and all
 * channels share the encoded bytes. A comma follows each message in the buffer.
 */
export class MessageCache {
  readonly #writer: MessageWriter;
  readonly #out = new ByteWriter();
  #starts = new Int32Array(0);
  #ends = new Int32Array(0);
  #write: (index: number) => void = () => {};

  constructor(writer: MessageWriter) {
    this.#writer = writer;
  }

  /** Starts a new batch, and discards the encoded messages of the previous batch. */
  of(seen: Seen): this {
    this.#begin(sizeOf(seen));
    this.#write = this.#writeOf(seen);
    return this;
  }

  /**
   * Returns the messages with these indexes in the batch: one message as a JSON object, several messages as a
   * JSON array. `indexes` must not be empty.
   */
  frame(indexes: readonly number[]): Uint8Array<ArrayBuffer> {
    let bytes = 0;
    for (const index of indexes) bytes += this.#sizeOf(index);
    if (indexes.length === 1) {
      const start = i32At(this.#starts, itemAt(indexes, 0));
      return this.#out.bytes.slice(start, start + bytes - 1);
    }
    // Add one byte for the opening bracket. The closing bracket replaces the comma after the last message.
    const frame = new Uint8Array(bytes + 1);
    frame[0] = OPEN;
    let at = 1;
    for (let from = 0; from < indexes.length; ) {
      const start = i32At(this.#starts, itemAt(indexes, from));
      let end = i32At(this.#ends, itemAt(indexes, from));
      // Copy messages that are adjacent in the buffer with one `set` call.
      for (from++; from < indexes.length && this.#starts[itemAt(indexes, from)] === end; from++)
        end = i32At(this.#ends, itemAt(indexes, from));
      frame.set(this.#out.bytes.subarray(start, end), at);
      at += end - start;
    }
    frame[bytes] = CLOSE;
    return frame;
  }

  #writeOf(seen: Seen): (index: number) => void {
    const [writer, out] = [this.#writer, this.#out];
    switch (seen.kind) {
      case 'events':
        return (index) => writer.record(out, seen.batch, index);
      case 'lookups':
        return (index) => writer.lookup(out, itemAt(seen.lookups, index));
      case 'connections':
        return (index) => writer.connection(out, itemAt(seen.connections, index));
    }
  }

  #begin(count: number): void {
    this.#out.length = 0;
    if (this.#starts.length < count) {
      this.#starts = new Int32Array(count);
      this.#ends = new Int32Array(count);
    }
    this.#ends.fill(0, 0, count);
  }

  /** Returns the size in bytes of a message with its comma. Encodes the message first, if necessary. */
  #sizeOf(index: number): number {
    if (this.#ends[index] === 0) {
      this.#starts[index] = this.#out.length;
      this.#write(index);
      this.#out.byte(COMMA);
      this.#ends[index] = this.#out.length;
    }
    return i32At(this.#ends, index) - i32At(this.#starts, index);
  }
}
