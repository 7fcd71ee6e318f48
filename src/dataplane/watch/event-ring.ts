import { RECORD_BYTES, RECORD_HEADER_BYTES } from '#dataplane/events/batch.js';
import { EVENT_BYTES } from '#dataplane/events/event.js';
import { MappedMemory, PAGE_BYTES } from '#libc/mapped-memory.js';

// Bits in the length field of a record header: BPF_RINGBUF_BUSY_BIT and BPF_RINGBUF_DISCARD_BIT of the
// kernel.
const BUSY = 0x8000_0000;
const DISCARDED = 0x4000_0000;
const ALIGNMENT = 8;

/**
 * The BPF ring buffer `events`, mapped into memory. The first page has the consumer position, the second
 * page has the producer position, and then follows the data area. The kernel maps the data area twice in a
 * row, so that a record that wraps around is contiguous.
 */
export class EventRing {
  readonly #consumer: MappedMemory;
  readonly #producer: MappedMemory;
  readonly #consumed: BigUint64Array;
  readonly #produced: BigUint64Array;
  readonly #headers: Uint32Array;
  readonly #data: Uint8Array;
  #position: number;

  /**
   * `bytes` is the size of the data area: the map's `max_entries`. Only one instance at a time may read a
   * ring buffer.
   */
  constructor(
    fd: number,
    readonly bytes: number,
  ) {
    this.#consumer = new MappedMemory('consumer of events', fd, PAGE_BYTES);
    this.#producer = new MappedMemory('events', fd, PAGE_BYTES + 2 * bytes, { offset: PAGE_BYTES, readOnly: true });
    this.#consumed = new BigUint64Array(this.#consumer.buffer, 0, 1);
    this.#produced = new BigUint64Array(this.#producer.buffer, 0, 1);
    this.#headers = new Uint32Array(this.#producer.buffer, PAGE_BYTES);
    this.#data = new Uint8Array(this.#producer.buffer, PAGE_BYTES);
    this.#position = Number(Atomics.load(this.#consumed, 0));
  }

  /**
   * Removes at most `most` of the oldest records from the ring buffer, and returns a copy of them. Each
   * record in the copy has its header and is `RECORD_BYTES` long. Returns an empty array if there is no
   * record, or if the kernel is still writing the oldest record.
   */
  take(most: number): Uint8Array<ArrayBuffer> {
    // Read the producer position before the record headers, and each header before its data, or a record
    // could be read before it is complete. `Atomics.load` keeps this order.
    const produced = Number(Atomics.load(this.#produced, 0));
    let start = this.#position % this.bytes;
    const end = start + (produced - this.#position);
    while (start < end && (this.#header(start) & DISCARDED) !== 0) start += stepOf(this.#header(start));
    let at = start;
    for (let count = 0; count < most && at < end; count++, at += RECORD_BYTES) {
      const header = this.#header(at);
      if ((header & (BUSY | DISCARDED)) !== 0) break;
      if (header !== EVENT_BYTES)
        throw new Error(`read the ring buffer named events: a record has ${header} bytes, expected ${EVENT_BYTES}`);
    }
    const records = this.#data.slice(start, at);
    // Advance the consumer position only after the records were copied. The kernel may overwrite the records
    // as soon as the position has changed.
    this.#consume(produced - (end - at));
    return records;
  }

  unmap(): void {
    this.#consumer.unmap();
    this.#producer.unmap();
  }

  #header(offset: number): number {
    return Atomics.load(this.#headers, offset >>> 2);
  }

  #consume(position: number): void {
    if (position === this.#position) return;
    this.#position = position;
    Atomics.store(this.#consumed, 0, BigInt(position));
  }
}

function stepOf(header: number): number {
  const length = header & ~(BUSY | DISCARDED);
  return Math.ceil((RECORD_HEADER_BYTES + length) / ALIGNMENT) * ALIGNMENT;
}
