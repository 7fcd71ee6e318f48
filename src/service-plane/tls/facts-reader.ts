import { MessageReader } from './message-reader.js';
import { RecordReader } from './record-reader.js';

/**
 * Reads facts from the first records of a TLS stream. The division of the stream into chunks does not change
 * the facts. A subclass implements `read`, which reads `records` and `messages`.
 */
export abstract class FactsReader<Facts> {
  protected readonly records: RecordReader;
  protected readonly messages: MessageReader;
  #facts: Facts | null = null;

  /** `limit`: the maximum length of the stream. `longest`: the maximum payload of a record. Both in bytes. */
  constructor(bounds: { readonly limit: number; readonly longest: number }) {
    this.records = new RecordReader(bounds);
    this.messages = new MessageReader(bounds.limit);
  }

  /**
   * All bytes that `push` has received so far, including bytes after those that gave the facts. The value is
   * a view that is valid until the next push.
   */
  get bytes(): Uint8Array {
    return this.records.bytes;
  }

  /** Returns the facts; null if more bytes are needed. Later calls return the same facts. */
  push(chunk: Uint8Array): Facts | null {
    this.records.push(chunk);
    this.#facts ??= this.read();
    return this.#facts;
  }

  /** Returns the facts; null if more bytes are needed. */
  protected abstract read(): Facts | null;
}
