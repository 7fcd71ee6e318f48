const WORTH_SHARING_BYTES = 64 * 1024;

/**
 * Creates an array of zeros. A large array is in shared memory, so that sending it to another thread does
 * not copy it. After that, no thread may write to it.
 */
export function sharedWords(length: number): Uint32Array {
  return new Uint32Array(roomFor(length * Uint32Array.BYTES_PER_ELEMENT));
}

/**
 * Creates a byte array of zeros. A large array is in shared memory, so that sending it to another thread
 * does not copy it. After that, no thread may write to it.
 */
export function sharedBytes(length: number): Uint8Array {
  return new Uint8Array(roomFor(length));
}

function roomFor(bytes: number): ArrayBufferLike {
  return bytes < WORTH_SHARING_BYTES ? new ArrayBuffer(bytes) : new SharedArrayBuffer(bytes);
}
