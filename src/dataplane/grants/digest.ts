import { createHash } from 'node:crypto';
import { PATTERN } from './grant-layout.js';

/** What stands for a pattern's text in the memory that outlives the process. */
export function digestOf(text: string): Uint32Array {
  const digest = createHash('sha256').update(text).digest();
  // Made like this it has no memory outside of the heap.
  const words = new Uint32Array(PATTERN.digestBytes / 4);
  for (let word = 0; word < words.length; word++) words[word] = digest.readUInt32LE(4 * word);
  return words;
}
