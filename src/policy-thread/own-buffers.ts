const WORTH_IT_BYTES = 64 * 1024;

/**
 * The buffers in a message that may be transferred instead of copied: large ones that belong to one typed array as a
 * whole. A small one may lie in a pool that others use.
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
      // Numbers and strings by the hundred thousand are no reason to look at each.
      if (typeof value[0] === 'object') value.forEach(visit);
    } else if (typeof value === 'object' && value !== null) Object.values(value).forEach(visit);
  };
  visit(message);
  return [...found];
}
