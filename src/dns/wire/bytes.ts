import { u8At } from '#arrays/read.js';
/**
 * Copies the bytes from offset `from` to offset `to`. A `subarray` would keep the whole datagram and its
 * buffer pool in memory.
 */
export function copyOf(bytes: Uint8Array, from: number, to: number): Uint8Array {
  const copy = new Uint8Array(to - from);
  if (copy.length > 64) copy.set(bytes.subarray(from, to));
  else for (let at = 0; at < copy.length; at++) copy[at] = u8At(bytes, from + at);
  return copy;
}

export function u16(bytes: Uint8Array, at: number): number {
  return (u8At(bytes, at) << 8) | u8At(bytes, at + 1);
}

export function u32(bytes: Uint8Array, at: number): number {
  return ((u16(bytes, at) << 16) | u16(bytes, at + 2)) >>> 0;
}

export function u128(bytes: Uint8Array, at: number): bigint {
  let value = 0n;
  for (let word = 0; word < 16; word += 4) value = (value << 32n) | BigInt(u32(bytes, at + word));
  return value;
}

export function putU16(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 8;
  bytes[at + 1] = value;
}

export function putU32(bytes: Uint8Array, at: number, value: number): void {
  putU16(bytes, at, value >>> 16);
  putU16(bytes, at + 2, value);
}
