import koffi from 'koffi';
import { held } from './hold.js';

export type Pointer = bigint;

/**
 * The functions of a library by their prototypes: a wrong one is a crash. Buffers are passed as they are; structs that hold
 * pointers are built by hand, and what they point to must be referenced until the call returns. Null: what this process
 * has loaded.
 */
export function bindLibrary<T>(library: string | null, prototypes: Record<keyof T, string>): T {
  return held(() => {
    const handle = koffi.load(library);
    const bound: Record<string, unknown> = {};
    for (const [name, prototype] of Object.entries<string>(prototypes)) bound[name] = handle.func(prototype);
    return bound as T;
  });
}

export function addressOf(buffer: ArrayBufferView): Pointer {
  return held(() => koffi.address(buffer));
}

/** Memory at an address, without a copy. It must not be unmapped while this is in use. */
export function memoryAt(address: Pointer, length: number): ArrayBuffer {
  return held(() => koffi.view(address, length));
}
