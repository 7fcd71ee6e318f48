const WORTH_IT_BYTES = 64 * 1024;

/**
 * Returns the buffers of a message that can be transferred instead of copied: buffers of at least 64 KiB that
 * one typed array covers completely. A smaller typed array may lie in a buffer pool of Node.js, and a
 * transfer would detach the whole pool.
 */
export function ownBuffers(message: unknown): ArrayBuffer[] {
  const found = new Set<ArrayBuffer>();
  const visit = (value: unknown): void => {
    if (ArrayBuffer.isView(value)) {
      const { buffer, byteLength } = value;
      if (buffer instanceof ArrayBuffer && byteLength === buffer.byteLength && byteLength >= WORTH_IT_BYTES)
        found.add(buffer);
      return;
    }
    if (Array.isArray(value)) {
      // Skip arrays of plain numbers or strings: they contain no buffers, and a visit of each element would
      // be slow.
      if (typeof value[0] === 'object') value.forEach(visit);
    } else if (typeof value === 'object' && value !== null) Object.values(value).forEach(visit);
  };
  visit(message);
  return [...found];
}
