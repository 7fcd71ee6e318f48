/**
 * Functions that read an array element and throw a RangeError if the index is outside of the array, where a
 * plain read returns undefined. Each type of array has its own function, because V8 would look up the type on
 * each call of a function that reads several types.
 */

export function u8At(array: Uint8Array, index: number): number {
  return array[index] ?? outside(array, index);
}

export function u16At(array: Uint16Array, index: number): number {
  return array[index] ?? outside(array, index);
}

export function i16At(array: Int16Array, index: number): number {
  return array[index] ?? outside(array, index);
}

export function u32At(array: Uint32Array, index: number): number {
  return array[index] ?? outside(array, index);
}

export function i32At(array: Int32Array, index: number): number {
  return array[index] ?? outside(array, index);
}

export function f64At(array: Float64Array, index: number): number {
  return array[index] ?? outside(array, index);
}

export function u64At(array: BigUint64Array, index: number): bigint {
  return array[index] ?? outside(array, index);
}

/** Reads an element of a plain array, whose elements must not be undefined or null. */
export function itemAt<T extends NonNullable<unknown>>(array: readonly T[], index: number): T {
  return array[index] ?? outside(array, index);
}

function outside({ length }: ArrayLike<unknown>, index: number): never {
  throw new RangeError(`index ${index} is outside of an array of ${length} elements`);
}
