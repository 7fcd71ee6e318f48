import { createHash } from 'node:crypto';
import { PATTERN } from './layout.js';

/** What stands for a pattern's text in the memory that outlives the process. */
export function digestOf(text: string): Uint32Array {
  const digest = new Uint8Array(PATTERN.digestBytes);
  digest.set(createHash('sha256').update(text).digest().subarray(0, PATTERN.digestBytes));
  return new Uint32Array(digest.buffer);
}
