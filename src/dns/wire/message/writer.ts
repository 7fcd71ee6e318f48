import { i16At, i32At, itemAt, u8At, u16At } from '#arrays/read.js';
import { putU16, putU32, u16 } from '#dns/wire/bytes.js';
import { HEADER_BYTES, LABEL_BYTES, MESSAGE_BYTES } from '#dns/wire/dns-numbers.js';
import { LOWER, type WireName } from '#dns/wire/name.js';
import type { ResourceRecord } from './dns-message.js';
import { layoutOf } from './message-layout.js';

const BUCKETS = 256;
const PLACES = 1024;
/**
 * The maximum number of hash-chain entries that are compared for one suffix of a name. If more entries
 * collide, the writer does not compress the suffix: the message is larger, but the time to write the message
 * stays limited.
 */
const LOOKS = 16;
const POINTABLE = 0x4000;
const LABELS = 128;
const POINTER_TO_QUESTION = 0xc000 | HEADER_BYTES;

/**
 * The shared output buffer. It has room for one record of the greatest size after a full message: `overflown`
 * is only checked between two records.
 */
const out = new Uint8Array(2 * MESSAGE_BYTES + 1024);

// A hash table of the offsets of name suffixes that the message already contains. `heads` has the first entry
// of each bucket, and `nexts` the next entry of the same bucket.
const heads = new Int16Array(BUCKETS);
const nexts = new Int16Array(PLACES);
const hashes = new Int32Array(PLACES);
const offsets = new Uint16Array(PLACES);
const starts = new Uint8Array(LABELS);
const endings = new Int32Array(LABELS);

/**
 * Writes one DNS message at a time into a shared buffer. The writer compresses names (RFC 1035, 4.1.4), and
 * ignores letter case when it compares them. A name that is a pointer to the question thus gets the letter
 * case of the client's query.
 */
export class MessageWriter {
  at = HEADER_BYTES;
  readonly ttlOffsets: number[] = [];
  readonly ttls: number[] = [];
  readonly #question: WireName;
  #places = 0;

  constructor(question: WireName, type: number, of: number) {
    heads.fill(-1);
    out.fill(0, 0, HEADER_BYTES);
    this.#question = question;
    this.#name(question);
    putU16(out, this.at, type);
    putU16(out, this.at + 2, of);
    this.at += 4;
  }

  get overflown(): boolean {
    return this.at > MESSAGE_BYTES;
  }

  records(records: readonly ResourceRecord[]): void {
    for (let index = 0; index < records.length && !this.overflown; index++) this.#record(itemAt(records, index));
  }

  /** Returns a copy of the message written so far. The id of the message is 0. */
  bytes(flags: number, answers: number, authorities: number, additionals: number): Uint8Array {
    putU16(out, 2, flags);
    putU16(out, 4, 1);
    putU16(out, 6, answers);
    putU16(out, 8, authorities);
    putU16(out, 10, additionals);
    return out.slice(0, this.at);
  }

  #record(record: ResourceRecord): void {
    this.#name(record.name);
    const { at } = this;
    putU16(out, at, record.type);
    putU16(out, at + 2, record.class);
    putU32(out, at + 4, record.ttl);
    this.ttlOffsets.push(at + 4);
    this.ttls.push(record.ttl);
    this.at = at + 10;
    this.#data(record.type, record.data);
    putU16(out, at + 8, this.at - at - 10);
  }

  #data(type: number, data: Uint8Array): void {
    const layout = layoutOf(type);
    if (layout === undefined || !layout.compressed) {
      this.#copy(data, 0, data.length);
      return;
    }
    this.#copy(data, 0, layout.prefix);
    let from = layout.prefix;
    for (let name = 0; name < layout.names; name++) {
      const end = endOfName(data, from);
      this.#name(from === 0 && end === data.length ? data : data.subarray(from, end));
      from = end;
    }
    this.#copy(data, from, data.length);
  }

  #copy(data: Uint8Array, from: number, to: number): void {
    let { at } = this;
    if (to - from > 64) {
      out.set(from === 0 && to === data.length ? data : data.subarray(from, to), at);
      at += to - from;
    } else for (let index = from; index < to; index++) out[at++] = u8At(data, index);
    this.at = at;
  }

  #name(name: WireName): void {
    if (name === this.#question && this.at > HEADER_BYTES && name.length > 1) {
      putU16(out, this.at, POINTER_TO_QUESTION);
      this.at += 2;
      return;
    }
    const count = hashed(name);
    for (let label = 0; label < count; label++) {
      const from = u8At(starts, label);
      const place = this.#find(i32At(endings, label), name, from);
      if (place >= 0) {
        this.#copy(name, 0, from);
        putU16(out, this.at, 0xc000 | place);
        this.at += 2;
        return;
      }
      this.#remember(i32At(endings, label), this.at + from);
    }
    this.#copy(name, 0, name.length);
  }

  #find(hash: number, name: WireName, from: number): number {
    let place = i16At(heads, hash & (BUCKETS - 1));
    for (let look = 0; place >= 0 && look < LOOKS; look++) {
      // An offset at or after `this.at` belongs to the name that is being written. The bytes at this offset
      // are not written yet, so no pointer may refer to them.
      const offset = u16At(offsets, place);
      if (hashes[place] === hash && offset < this.at && sameEnding(offset, name, from)) return offset;
      place = i16At(nexts, place);
    }
    return -1;
  }

  #remember(hash: number, offset: number): void {
    if (offset >= POINTABLE || this.#places === PLACES) return;
    const place = this.#places++;
    const bucket = hash & (BUCKETS - 1);
    offsets[place] = offset;
    hashes[place] = hash;
    nexts[place] = i16At(heads, bucket);
    heads[bucket] = place;
  }
}

/**
 * For each suffix of a name except the root, writes the hash of the suffix into `endings` and the offset of
 * its first label into `starts`. Returns the number of suffixes.
 */
function hashed(name: WireName): number {
  let count = 0;
  for (let at = 0; u8At(name, at) > 0; at += u8At(name, at) + 1) starts[count++] = at;
  let hash = 0x811c9dc5 | 0;
  let end = name.length - 1;
  for (let label = count - 1; label >= 0; label--) {
    const start = u8At(starts, label);
    for (let at = start; at < end; at++) hash = Math.imul(hash ^ u8At(LOWER, u8At(name, at)), 0x01000193);
    hash ^= hash >>> 15;
    endings[label] = hash;
    end = start;
  }
  return count;
}

/**
 * Whether the name at offset `offset` of the output buffer equals the suffix of `name` that begins at offset
 * `from`. Letter case does not matter.
 */
function sameEnding(offset: number, name: WireName, from: number): boolean {
  let at = offset;
  for (let place = from; ; ) {
    let length = u8At(out, at);
    while (length > LABEL_BYTES) {
      at = u16(out, at) & (POINTABLE - 1);
      length = u8At(out, at);
    }
    if (length !== name[place]) return false;
    if (length === 0) return true;
    for (const end = place + length; place < end; ) {
      if (LOWER[u8At(out, ++at)] !== LOWER[u8At(name, ++place)]) return false;
    }
    at++;
    place++;
  }
}

function endOfName(data: Uint8Array, from: number): number {
  let at = from;
  while (u8At(data, at) > 0) at += u8At(data, at) + 1;
  return at + 1;
}
