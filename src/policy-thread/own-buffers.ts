const WORTH_IT_BYTES = 64 * 1024;

/**
 * The buffers of a message that may be transferred instead of copied: large buffers that belong to one typed
 * array as a whole. A small buffer may be part of a pool that others use.
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
      // Arrays of plain numbers or strings hold no buffer, so their elements are not visited.
      if (typeof value[0] === 'object') value.forEach(visit);
    } else if (typeof value === 'object' && value !== null) Object.values(value).forEach(visit);
  };
  visit(message);
  return [...found];
}
