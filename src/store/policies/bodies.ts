import { createHash, webcrypto } from 'node:crypto';
import { promisify } from 'node:util';
import { constants, gunzip, gunzipSync, gzip } from 'node:zlib';
import type { TextEdit } from '#contracts/policy/policy-record.js';
import { encodeJson } from '#store/records/json-value.js';
import { type Part, RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvReads } from '#store/store-types.js';

const compress = promisify<Uint8Array, { level: number }, Buffer>(gzip);
const decompress = promisify<Uint8Array, { maxOutputLength: number }, Buffer>(gunzip);

/**
 * The maximum size in bytes of a part of a policy body (JSON text). If an edit leaves less than a quarter of
 * this size in the edited parts, the rest is merged with a neighbouring part.
 */
const PART_BYTES = 128 * 1024;

/**
 * The gzip levels for the parts of a whole body and for the parts of an edit. An edit has few parts, which
 * are sent to all nodes of a cluster, so it uses the slower level: it compresses 128 KiB of rules to 16 KiB
 * instead of 21 KiB.
 */
const OF_WHOLE = constants.Z_BEST_SPEED;
const OF_EDIT = constants.Z_DEFAULT_COMPRESSION;

const MAX_BODY_BYTES = 128 * 1024 * 1024;
/**
 * A value up to this size is decompressed on the calling thread, because the use of another thread would take
 * longer.
 */
const SMALL_BYTES = 4 * 1024;

export const listKey = (sha256: string) => `parts/${sha256}`;
export const partKey = (sha256: string) => `part/${sha256}`;

/**
 * Returns the hashes of the parts in a list of parts. Throws `store_damaged` if the value is not a list of
 * parts.
 */
export function partsIn(list: Uint8Array): readonly string[] {
  return RECORDS.parts.read('parts/', list).map(({ sha256 }) => sha256);
}

/** Whether `value` is the list of parts, or the part, whose hash is in `key`. */
export async function isBodyValue(key: string, value: Uint8Array): Promise<boolean> {
  try {
    const text = key.startsWith('parts/') ? value : await inflated(value);
    return key.endsWith(`/${createHash('sha256').update(text).digest('hex')}`);
  } catch {
    return false;
  }
}

/**
 * The write of a policy text. `sha256` is the hash of the list of its parts. `operations` write the new parts
 * and the list to the store. `bytes`: the size of those values that the revision before does not have.
 */
export type BodyWrite = {
  readonly sha256: string;
  readonly operations: readonly KvOperation[];
  readonly bytes: number;
};

/** The write of a whole policy text. `compressed` is the text as a gzip file. */
export type WholeBodyWrite = BodyWrite & { readonly compressed: Uint8Array };

/**
 * Stores each policy body (the JSON text of a policy) as a list of gzip-compressed parts. The key of a part
 * is its hash, so that revisions of a policy share equal parts. The key of a body is the hash of its list of
 * parts. Equal bodies that were cut differently have different hashes.
 */
export class Bodies {
  readonly #kv: KvReads;

  constructor(kv: KvReads) {
    this.#kv = kv;
  }

  /**
   * Returns the write of a whole policy text. `before`: the hash of the list of parts of the previous
   * revision; null if there is none.
   */
  async whole(body: Uint8Array, before: string | null = null): Promise<WholeBodyWrite> {
    const { parts, values } = await cut(body, OF_WHOLE);
    const known = before === null ? null : await this.#kv.get(listKey(before)).catch(() => null);
    return { ...listed(parts, parts, values, known), compressed: Buffer.concat(values) };
  }

  /**
   * Returns the write of a policy text that is already stored. It writes the same values again, because a
   * sweep of the history may remove some of its parts at the same time.
   */
  async again(sha256: string): Promise<WholeBodyWrite> {
    const key = listKey(sha256);
    const list = present(await this.#kv.get(key), sha256);
    const parts = RECORDS.parts.read(key, list);
    const values = await this.#values(parts);
    const operations = [...parts.map(({ sha256: own }, at) => put(partKey(own), values[at])), put(key, list)];
    return { sha256, operations, bytes: 0, compressed: Buffer.concat(values) };
  }

  /**
   * Applies an edit to a stored policy text, and returns the write of the edited text. Rewrites only the
   * parts of the text that the edit touches, and at most one neighbouring part.
   */
  async edited(sha256: string, edit: TextEdit): Promise<BodyWrite> {
    const parts = await this.#list(sha256);
    const { first, end, start } = widened(parts, edit);
    const before = await this.#texts(parts.slice(first, end));
    const text = edited(before, { ...edit, from: edit.from - start, to: edit.to - start });
    const fresh = await cut(text, OF_EDIT);
    return listed(parts.toSpliced(first, end - first, ...fresh.parts), fresh.parts, fresh.values);
  }

  /** Returns the policy text as a gzip file, which may consist of several gzip members (RFC 1952). */
  async compressed(sha256: string): Promise<Uint8Array> {
    const parts = await this.#list(sha256);
    return Buffer.concat(await this.#values(parts));
  }

  async read(sha256: string): Promise<Uint8Array> {
    return this.#texts(await this.#list(sha256));
  }

  async slice(sha256: string, from: number, to: number): Promise<Uint8Array> {
    const parts = await this.#list(sha256);
    const { first, end, start } = touched(parts, { from, to });
    return (await this.#texts(parts.slice(first, end))).subarray(from - start, to - start);
  }

  async #list(sha256: string): Promise<readonly Part[]> {
    const key = listKey(sha256);
    return RECORDS.parts.read(key, present(await this.#kv.get(key), sha256));
  }

  async #texts(parts: readonly Part[]): Promise<Uint8Array> {
    const values = await this.#values(parts);
    return Buffer.concat(await Promise.all(values.map((value) => inflated(value))));
  }

  async #values(parts: readonly Part[]): Promise<Uint8Array[]> {
    const found = await this.#kv.getMany(parts.map(({ sha256 }) => partKey(sha256)));
    return parts.map(({ sha256 }, at) => present(found[at] ?? null, sha256));
  }
}

/**
 * Decompresses a gzip file. Throws `store_damaged` if it is none, or if the result would be larger than
 * `MAX_BODY_BYTES`.
 */
export async function inflated(value: Uint8Array): Promise<Uint8Array> {
  const options = { maxOutputLength: MAX_BODY_BYTES };
  try {
    return value.length <= SMALL_BYTES ? gunzipSync(value, options) : await decompress(value, options);
  } catch (cause) {
    throw new StoreError('store_damaged', 'read the text of a policy: the stored value cannot be decompressed', {
      cause,
    });
  }
}

export function edited(text: Uint8Array, { from, to, text: fresh }: TextEdit): Uint8Array {
  return Buffer.concat([text.subarray(0, from), fresh, text.subarray(to)]);
}

type Places = Pick<TextEdit, 'from' | 'to'>;
type Touched = { readonly first: number; readonly end: number; readonly start: number; readonly bytes: number };

/**
 * Finds the parts of a policy text that contain the bytes from `from` to `to` (exclusive). Returns the
 * indexes of these parts from `first` to `end` (exclusive), the offset `start` of the first part, and the
 * size of all parts.
 */
function touched(parts: readonly Part[], { from, to }: Places): Touched {
  let first = 0;
  let start = 0;
  while (first + 1 < parts.length && start + bytesOf(parts, first) <= from) start += bytesOf(parts, first++);
  let end = first;
  let bytes = 0;
  while (end < parts.length && (end === first || start + bytes < to)) bytes += bytesOf(parts, end++);
  return { first, end, start, bytes };
}

/**
 * Like `touched`, but adds a neighbouring part of the policy text if the edit leaves little text in the
 * touched parts. Without this, many edits would produce many small parts.
 */
function widened(parts: readonly Part[], edit: TextEdit): Touched {
  const { first, end, start, bytes } = touched(parts, edit);
  const left = bytes - (edit.to - edit.from) + edit.text.length;
  if (left >= PART_BYTES / 4) return { first, end, start, bytes };
  if (end < parts.length) return { first, end: end + 1, start, bytes: bytes + bytesOf(parts, end) };
  if (first === 0) return { first, end, start, bytes };
  const before = bytesOf(parts, first - 1);
  return { first: first - 1, end, start: start - before, bytes: bytes + before };
}

/** Cuts a policy text into parts of similar length and compresses each part. */
async function cut(
  text: Uint8Array,
  level: number,
): Promise<{ readonly parts: Part[]; readonly values: Uint8Array[] }> {
  const count = Math.ceil(text.length / PART_BYTES);
  const size = Math.ceil(text.length / Math.max(1, count));
  const texts = Array.from({ length: count }, (_, at) => text.subarray(at * size, (at + 1) * size));
  const hashes = await Promise.all(texts.map((part) => webcrypto.subtle.digest('SHA-256', part)));
  const parts = texts.map(({ length }, at) => ({ sha256: hex(hashes[at]), bytes: length }));
  const values = await Promise.all(texts.map((part) => compress(part, { level })));
  return { parts, values };
}

function hex(hash: ArrayBuffer = new ArrayBuffer(0)): string {
  return Buffer.from(hash).toString('hex');
}

/** `before`: the list of parts of the revision before, if it can have the same parts. */
function listed(
  all: readonly Part[],
  fresh: readonly Part[],
  values: readonly Uint8Array[],
  before: Uint8Array | null = null,
): BodyWrite {
  const list = encodeJson(all);
  const sha256 = createHash('sha256').update(list).digest('hex');
  const puts = fresh.map(({ sha256: own }, at) => put(partKey(own), values[at]));
  const isSame = before !== null && Buffer.compare(before, list) === 0;
  const read = before === null ? undefined : RECORDS.parts.reading('parts/', before).value;
  const known = new Set(read?.map(({ sha256: own }) => own));
  const added = fresh.map(({ sha256: own }, at) => (known.has(own) ? 0 : (values[at]?.length ?? 0)));
  const bytes = added.reduce((sum, size) => sum + size, isSame ? 0 : list.length);
  return { sha256, operations: [...puts, put(listKey(sha256), list)], bytes };
}

function put(key: string, value: Uint8Array = new Uint8Array(0)): KvOperation {
  return { type: 'put', key, value };
}

function present(value: Uint8Array | null, sha256: string): Uint8Array {
  if (value === null)
    throw new StoreError('store_damaged', `read the text of a policy: the value with the hash ${sha256} is missing`);
  return value;
}

function bytesOf(parts: readonly Part[], index: number): number {
  return parts[index]?.bytes ?? 0;
}
