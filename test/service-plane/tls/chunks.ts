/** Splits the bytes into chunks of `size` bytes. */
export function split(bytes: Uint8Array, size: number): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
  return chunks;
}

/** Pushes all chunks into a reader, and returns the result of the last push. */
export function read<T>(reader: { push(chunk: Uint8Array): T | null }, chunks: readonly Uint8Array[]): T | null {
  let said: T | null = null;
  for (const chunk of chunks) said = reader.push(chunk);
  return said;
}
