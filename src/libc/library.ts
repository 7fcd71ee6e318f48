import koffi from 'koffi';
import { guarded } from './termination-guard.js';

export type Pointer = bigint;
/** An address as a plain number: it costs less than a `Pointer`, and those of a process fit. */
export type Address = number;

/** A call on a thread of the pool needs more than koffi's 128 KiB. koffi refuses this once it has loaded a library. */
koffi.config({ async_stack_size: 1024 * 1024 });

/**
 * The functions of a library by their prototypes: a wrong one is a crash. Buffers are passed as they are; structs that hold
 * pointers are built by hand, and what they point to must be referenced until the call returns. Null: what this process
 * has loaded.
 */
export function bindLibrary<T>(
  library: string | null,
  prototypes: Record<keyof T, string>,
  /** `deep`: the library takes its symbols from itself and its own libraries, and only then from Node. */
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

/** Memory at an address, without a copy. It must not be unmapped while this is in use. */
export function memoryAt(address: Pointer, length: number): ArrayBuffer {
  return guarded(() => koffi.view(address, length));
}

const memory = bindLibrary<{ memcpy(into: Uint8Array, from: Address, length: number): void }>(null, {
  // The result is not declared: it would become a value at each call.
  memcpy: 'void memcpy(_Out_ void *into, uint64_t from, size_t length)',
});

/** A copy of the bytes at an address. */
export function copyAt(address: Address, length: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(length);
  if (length > 0) memory.memcpy(copy, address, length);
  return copy;
}

/** The text at an address, up to its zero byte. */
export function textAt(address: Address): string {
  return guarded(() => koffi.decode.string(address));
}
