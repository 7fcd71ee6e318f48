import type { Cursor } from './tls-cursor.js';

/**
 * Reads the extensions at the end of a ClientHello or ServerHello. The keys of the result are extension
 * types. Returns null if a type is repeated (RFC 8446, 4.2), or if the extensions do not end exactly at the
 * end of the message.
 */
export function readExtensions(hello: Cursor): ReadonlyMap<number, Cursor> | null {
  const extensions = new Map<number, Cursor>();
  if (hello.left === 0) return hello.isSpent ? extensions : null;
  const block = hello.vector(2);
  if (!hello.isSpent) return null;
  while (block.left > 0) {
    const type = block.number(2);
    const data = block.vector(2);
    if (block.hasOverrun || extensions.has(type)) return null;
    extensions.set(type, data);
  }
  return extensions;
}
