import type { KvOperation, KvRange } from './store-types.js';

export function encodeJson(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value));
}

/** Values have a checksum, so a value that parses was written by this program. */
export function decodeJson<T>(bytes: Uint8Array): T {
  return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()) as T;
}

export function putJson(key: string, value: unknown): KvOperation {
  return { type: 'put', key, value: encodeJson(value) };
}

/** All keys that begin with `prefix`, which ends in `/`. */
export function under(prefix: `${string}/`): KvRange {
  return { gte: prefix, lt: `${prefix.slice(0, -1)}0` };
}
