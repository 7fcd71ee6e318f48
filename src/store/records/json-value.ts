import type { KvOperation, KvRange } from '#store/store-types.js';

export function encodeJson(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value));
}

export function putJson(key: string, value: unknown): KvOperation {
  return { type: 'put', key, value: encodeJson(value) };
}

/** Returns the range of all keys that begin with `prefix`. The prefix must end in `/`. */
export function under(prefix: `${string}/`): KvRange {
  return { gte: prefix, lt: `${prefix.slice(0, -1)}0` };
}
