import koffi from 'koffi';
import { guarded } from './termination-guard.js';

export type Pointer = bigint;
/** An address as a number: cheaper than a `Pointer`, and exact, since user-space addresses are below 2^53. */
export type Address = number;

/**
 * Asynchronous calls need a larger stack than koffi's default of 128 KiB. koffi rejects this call once a
 * library is loaded.
 */
koffi.config({ async_stack_size: 1024 * 1024 });

/**
 * Binds functions of a library by their C prototypes; a wrong prototype crashes the process. Buffers are
 * passed without a copy. Structs with pointers are built by hand, and the objects that they point to must be
 * referenced until the call returns. With null, binds functions that the process has already loaded.
 */
export function bindLibrary<T>(
  library: string | null,
  prototypes: Record<keyof T, string>,
  /**
   * `deep`: the library resolves its symbols in itself and its own libraries first, and only then in Node.js.
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

/** Memory at an address, without a copy. It must stay mapped while the buffer is in use. */
export function memoryAt(address: Pointer, length: number): ArrayBuffer {
  return guarded(() => koffi.view(address, length));
}

const memory = bindLibrary<{ memcpy(into: Uint8Array, from: Address, length: number): void }>(null, {
  // No result is declared, because koffi would create a value for it at each call.
  memcpy: 'void memcpy(_Out_ void *into, uint64_t from, size_t length)',
});

/** A copy of the bytes at an address. */
export function copyAt(address: Address, length: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(length);
  if (length > 0) memory.memcpy(copy, address, length);
  return copy;
}

/** Decodes the text at an address, up to its zero byte. */
export function textAt(address: Address): string {
  return guarded(() => koffi.decode.string(address));
}
