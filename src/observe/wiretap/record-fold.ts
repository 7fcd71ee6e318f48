import { u32At } from '#arrays/read.js';
import { PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { EventBatch, type PackedEvents, RECORD_WORDS } from '#dataplane/events/batch.js';
import { EVENT_FLAG } from '#dataplane/events/event.js';
import { AT, isIcmpRecord, recordType, startOf, wide } from './messages/event-record.js';

const HAS_PORTS = new Set<number>(PORT_PROTOCOLS);
/** The number of 32-bit words that `#keyOf` writes at most. */
const KEY_WORDS = 19;
const FIRST_ROWS = 64;
const DESTINATION_PORT = 0xffff_0000;
/**
 * The fields of `AT.details` that a message contains. TCP flags are not among them, because they differ
 * between the packets of one connection.
 */
const DETAILS = { flow: 0xffff_0000, icmp: 0xff00_ffff, packet: 0xff00_0000 } as const;
/** The words of `struct event` that begin a 64-bit count: of packets and bytes, in both directions. */
const FLOW_COUNTS = [AT.packets, AT.packets + 2, AT.bytes, AT.bytes + 2] as const;
const PACKET_COUNTS = [AT.packets] as const;

/**
 * Kernel events of which equal ones are one row: the latest record with its counts of packets and bytes
 * summed up. Events are equal if they differ only in time, source port, ICMP id, TCP flags, length and these
 * counts. The fold works on raw records, because a message is made only for each row.
 */
export class RecordFold {
  #words = new Uint32Array(FIRST_ROWS * RECORD_WORDS);
  #keys = new Uint32Array(FIRST_ROWS * KEY_WORDS);
  #counts = new Uint32Array(FIRST_ROWS);
  #firstMs = new Float64Array(FIRST_ROWS);
  /** The row of each key, at the hash of the key, or at the next free number after the hash. */
  readonly #rows = new Map<number, number>();
  readonly #key = new Uint32Array(KEY_WORDS);
  #clock: EventBatch['clock'] = { monotonicNs: 0, unixMs: 0 };
  size = 0;

  add(batch: EventBatch, index: number): void {
    this.#clock = batch.clock;
    const at = startOf(index);
    const counts = this.#keyOf(batch.words, at);
    const row = this.#rowOf();
    if (row === this.size) {
      if (row === this.#counts.length) this.#grow();
      this.#keys.set(this.#key, row * KEY_WORDS);
      this.#counts[row] = 0;
      this.#firstMs[row] = batch.unixMs(wide(batch.words, at + AT.timeLow));
      for (let word = 0; word < RECORD_WORDS; word++) this.#words[startOf(row) + word] = u32At(batch.words, at + word);
      this.size++;
    } else this.#replace(startOf(row), batch.words, at, counts);
    this.#counts[row] = (this.#counts[row] ?? 0) + 1;
  }

  /** Returns the rows as a batch, in the order of their first events. It is valid until the next `clear`. */
  batch(): EventBatch {
    const packed: PackedEvents = { records: this.#words.buffer, count: this.size, lost: 0, ...this.#clock };
    return new EventBatch(packed);
  }

  countOf(row: number): number {
    return this.#counts[row] ?? 0;
  }

  /** Returns the time of the first event of a row, in milliseconds since 1970. */
  firstMsOf(row: number): number {
    return this.#firstMs[row] ?? 0;
  }

  clear(): void {
    this.#rows.clear();
    this.size = 0;
  }

  /**
   * Writes the key of a record to `#key`: the words that are the same in equal events. Returns the words of
   * the record that are counts.
   */
  #keyOf(words: Uint32Array, at: number): readonly number[] {
    const key = this.#key;
    const kind = u32At(words, at + AT.kind);
    const details = u32At(words, at + AT.details);
    const flags = details >>> 24;
    const isPacket = recordType(kind) === 'verdict';
    key.fill(0);
    key[0] = kind;
    key[1] = u32At(words, at + AT.ifindex);
    for (let word = 0; word < 4; word++) {
      key[2 + word] = u32At(words, at + AT.source + word);
      key[6 + word] = u32At(words, at + AT.destination + word);
    }
    const hasPorts = HAS_PORTS.has(kind >>> 24);
    const isIcmp = isIcmpRecord(kind, details);
    key[10] = hasPorts ? u32At(words, at + AT.ports) & DESTINATION_PORT : 0;
    key[11] = details & (isPacket ? (isIcmp ? DETAILS.icmp : DETAILS.packet) : DETAILS.flow);
    key[12] = u32At(words, at + AT.epoch);
    key[13] = u32At(words, at + AT.hit);
    key[14] = u32At(words, at + AT.hitCheck);
    if ((flags & EVENT_FLAG.translated) === 0) return isPacket ? PACKET_COUNTS : FLOW_COUNTS;
    // A translated record stores the destination before DNAT in the words for the counts of replies, and its
    // port in the word `details`.
    for (let word = 0; word < 2; word++) {
      key[15 + word] = u32At(words, at + AT.packets + 2 + word);
      key[17 + word] = u32At(words, at + AT.bytes + 2 + word);
    }
    if (hasPorts) key[11] |= details & 0xffff;
    return PACKET_COUNTS;
  }

  /** Returns the row with the key `#key`; the number of rows if there is none, after adding the row. */
  #rowOf(): number {
    for (let hash = hashOf(this.#key); ; hash = (hash + 1) & 0x3fff_ffff) {
      const row = this.#rows.get(hash);
      if (row === undefined) {
        this.#rows.set(hash, this.size);
        return this.size;
      }
      if (this.#isKeyOf(row)) return row;
    }
  }

  #isKeyOf(row: number): boolean {
    const start = row * KEY_WORDS;
    for (let word = 0; word < KEY_WORDS; word++) if (this.#keys[start + word] !== this.#key[word]) return false;
    return true;
  }

  #replace(row: number, words: Uint32Array, at: number, counts: readonly number[]): void {
    const own = this.#words;
    const [a, b, c, d] = counts.map((word) => wide(own, row + word) + wide(words, at + word));
    for (let word = 0; word < RECORD_WORDS; word++) own[row + word] = u32At(words, at + word);
    for (const [index, sum] of [a, b, c, d].entries()) {
      const word = counts[index];
      if (word === undefined || sum === undefined) break;
      own[row + word] = sum % 0x1_0000_0000;
      own[row + word + 1] = Math.floor(sum / 0x1_0000_0000);
    }
  }

  #grow(): void {
    this.#words = grown(this.#words);
    this.#keys = grown(this.#keys);
    this.#counts = grown(this.#counts);
    const firstMs = new Float64Array(2 * this.#firstMs.length);
    firstMs.set(this.#firstMs);
    this.#firstMs = firstMs;
  }
}

function grown(array: Uint32Array<ArrayBuffer>): Uint32Array<ArrayBuffer> {
  const larger = new Uint32Array(2 * array.length);
  larger.set(array);
  return larger;
}

/** Returns a number below 2^30, which V8 stores without an allocation. */
function hashOf(key: Uint32Array): number {
  let hash = 0x811c_9dc5;
  for (let word = 0; word < KEY_WORDS; word++) {
    hash = Math.imul(hash ^ u32At(key, word), 0x9e37_79b1);
    hash ^= hash >>> 15;
  }
  return (hash >>> 2) & 0x3fff_ffff;
}
