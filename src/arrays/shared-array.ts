const WORTH_SHARING_BYTES = 64 * 1024;

/**
 * Creates a zeroed array. A large array is in shared memory, so threads do not copy it. After the array was
 * sent to another thread, no thread may write to it.
 */
export function sharedWords(length: number): Uint32Array {
  return new Uint32Array(roomFor(length * Uint32Array.BYTES_PER_ELEMENT));
}

/**
 * Creates a zeroed byte array, in shared memory if it is large. After the array was sent to another thread,
 * no thread may write to it.
 */
export function sharedBytes(length: number): Uint8Array {
  return new Uint8Array(roomFor(length));
}

function roomFor(bytes: number): ArrayBufferLike {
  return bytes < WORTH_SHARING_BYTES ? new ArrayBuffer(bytes) : new SharedArrayBuffer(bytes);
}
