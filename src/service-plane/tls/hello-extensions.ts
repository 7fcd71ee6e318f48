import type { Cursor } from './tls-cursor.js';

/**
 * Reads the extensions at the end of a hello, by type; null: they do not end exactly at its end, or a type is
 * repeated (RFC 8446, 4.2).
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
