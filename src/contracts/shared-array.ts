const WORTH_SHARING_BYTES = 64 * 1024;

/**
 * An array of zeros. Threads share a large array instead of copying it: after it was sent, no thread may
 * write to it.
 */
export function sharedWords(length: number): Uint32Array {
  return new Uint32Array(roomFor(length * Uint32Array.BYTES_PER_ELEMENT));
}

/** The same for bytes. */
export function sharedBytes(length: number): Uint8Array {
  return new Uint8Array(roomFor(length));
}

function roomFor(bytes: number): ArrayBufferLike {
  return bytes < WORTH_SHARING_BYTES ? new ArrayBuffer(bytes) : new SharedArrayBuffer(bytes);
}
