import { itemAt } from '#arrays/read.js';
import type { SeenLookup } from '#contracts/dns/seen-lookup.js';
import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import { ByteWriter } from './messages/byte-writer.js';
import type { MessageWriter } from './messages/message-writer.js';
import { RecordFold } from './record-fold.js';
import type { Seen } from './seen-batch.js';

/** The maximum number of rows. When the fold is full, its rows must be sent before the end of the window. */
const MAX_ROWS = 4_096;
const OPEN = 0x5b;
const COMMA = 0x2c;
const CLOSE = 0x5d;

type Row<Item> = { latest: Item; messages: number; readonly firstMs: number };
/** The bytes of a frame of `rows` messages that stand for `messages` messages in all. */
export type FoldedFrame = { readonly bytes: Uint8Array<ArrayBuffer>; readonly rows: number; readonly messages: number };

/**
 * Folds equal messages of a wiretap channel into one message with a count. Messages are equal if they differ
 * only in time, source port, and the fields that the count or a sum replaces.
 */
export class MessageFold {
  readonly #writer: MessageWriter;
  readonly #out = new ByteWriter();
  readonly #records = new RecordFold();
  readonly #lookups = new Map<string, Row<SeenLookup>>();
  readonly #connections = new Map<string, Row<SeenConnection>>();

  constructor(writer: MessageWriter) {
    this.#writer = writer;
  }

  get size(): number {
    return this.#records.size + this.#lookups.size + this.#connections.size;
  }

  get isFull(): boolean {
    return this.size >= MAX_ROWS;
  }

  /** Adds the message with this index of the batch. The fold must not be full. */
  add(seen: Seen, index: number): void {
    switch (seen.kind) {
      case 'events':
        this.#records.add(seen.batch, index);
        return;
      case 'lookups':
        this.#addLookup(itemAt(seen.lookups, index));
        return;
      case 'connections':
        this.#addConnection(itemAt(seen.connections, index));
    }
  }

  /** Removes all rows, and returns frames of them with at most `most` messages each. */
  drain(most: number): readonly FoldedFrame[] {
    const frames: FoldedFrame[] = [];
    const out = this.#out;
    let [rows, messages] = [0, 0];
    const end = (): void => {
      if (rows === 0) return;
      frames.push({ bytes: frameOf(out, rows), rows, messages });
      [rows, messages] = [0, 0];
    };
    const write = (row: { readonly firstMs: number; readonly messages: number }, message: () => void): void => {
      if (rows === 0) {
        out.length = 0;
        out.byte(OPEN);
      }
      message();
      out.byte(COMMA);
      rows++;
      messages += row.messages;
      if (rows === most) end();
    };
    const batch = this.#records.batch();
    for (let at = 0; at < this.#records.size; at++) {
      const row = { firstMs: this.#records.firstMsOf(at), messages: this.#records.countOf(at) };
      write(row, () => {
        this.#writer.record(out, batch, at);
        this.#writer.folded(out, row.firstMs, row.messages);
      });
    }
    for (const row of this.#lookups.values())
      write(row, () => {
        this.#writer.lookup(out, row.latest);
        this.#writer.folded(out, row.firstMs, null);
      });
    for (const row of this.#connections.values())
      write(row, () => {
        this.#writer.connection(out, row.latest);
        this.#writer.folded(out, row.firstMs, row.messages);
      });
    end();
    this.#records.clear();
    this.#lookups.clear();
    this.#connections.clear();
    return frames;
  }

  #addLookup(lookup: SeenLookup): void {
    const { source, hostname, type, generation, word, count, lastMs } = lookup;
    const key = `${source} ${type} ${generation} ${word} ${hostname}`;
    const row = this.#lookups.get(key);
    if (row === undefined) {
      this.#lookups.set(key, { latest: lookup, messages: 1, firstMs: lastMs });
      return;
    }
    row.latest = { ...lookup, count: row.latest.count + count };
    row.messages++;
  }

  #addConnection(seen: SeenConnection): void {
    const { atMs, sourcePort: _, ...same } = seen;
    const key = JSON.stringify(same);
    const row = this.#connections.get(key);
    if (row === undefined) {
      this.#connections.set(key, { latest: seen, messages: 1, firstMs: atMs });
      return;
    }
    row.latest = seen;
    row.messages++;
  }
}

/** Returns the messages in `out`, which follow a bracket and are each followed by a comma, as a frame. */
function frameOf(out: ByteWriter, rows: number): Uint8Array<ArrayBuffer> {
  if (rows === 1) return out.bytes.slice(1, out.length - 1);
  const frame = out.bytes.slice(0, out.length);
  frame[out.length - 1] = CLOSE;
  return frame;
}
