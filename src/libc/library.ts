import koffi from 'koffi';
import { guarded } from './termination-guard.js';

export type Pointer = bigint;
/**
 * A memory address as a JavaScript number. A number is cheaper than a `Pointer`, and exact, because
 * user-space addresses are below 2^53.
 */
export type Address = number;

/**
 * Set the stack size before any library is loaded; koffi rejects later changes. Asynchronous calls need a
 * larger stack than koffi's default of 128 KiB.
 */
koffi.config({ async_stack_size: 1024 * 1024 });

/**
 * Binds functions of a C library by their prototypes; a wrong prototype crashes the process. koffi passes
 * buffers without a copy. If a caller writes a pointer into a struct, the caller must keep a reference to the
 * target until the call returns. With `library` null, binds functions that the process has already loaded.
 */
export function bindLibrary<T>(
  library: string | null,
  prototypes: Record<keyof T, string>,
  /**
   * `deep`: the library first resolves symbols in itself and its dependencies, and only then in Node.js
   * (`RTLD_DEEPBIND`).
   */
  options: { readonly deep?: boolean } = {},
): T {
  return guarded(() => {
    const handle = koffi.load(library, options);
    const bound: Record<string, unknown> = {};
    for (const [name, prototype] of Object.entries<string>(prototypes)) bound[name] = handle.func(prototype);
    return bound as T;
  });
}

export function addressOf(buffer: ArrayBufferView): Pointer {
  return guarded(() => koffi.address(buffer));
}

/**
 * Returns an ArrayBuffer over the memory at an address, without a copy. The memory must stay mapped while the
 * ArrayBuffer is in use.
 */
export function memoryAt(address: Pointer, length: number): ArrayBuffer {
  return guarded(() => koffi.view(address, length));
}

const memory = bindLibrary<{ memcpy(into: Uint8Array, from: Address, length: number): void }>(null, {
  // Declare no result, because koffi would create a JavaScript value for the result at each call.
  memcpy: 'void memcpy(_Out_ void *into, uint64_t from, size_t length)',
});

export function copyAt(address: Address, length: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(length);
  if (length > 0) memory.memcpy(copy, address, length);
  return copy;
}

/** Returns the zero-terminated text at an address. */
export function textAt(address: Address): string {
  return guarded(() => koffi.decode.string(address));
}
