import { createHash } from 'node:crypto';
import type { Program } from '#contracts/policy/program.js';
import { layout } from '#dataplane/image/program-image.js';

/** Returns the SHA-256 digest of a compiled policy, as `Slots.inForce` returns it. */
export function imageSha256(program: Program): string {
  return sha256(layout(program).words);
}

/** Returns the SHA-256 digest (hex) of these words, in their order in memory. */
export function sha256(...parts: readonly Uint32Array[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
  return hash.digest('hex');
}
