import type { Prefix } from './model.js';

export function firstAddress({ address, length }: Prefix): number {
  return (address & mask(length)) >>> 0;
}

export function lastAddress({ address, length }: Prefix): number {
  return (address | ~mask(length)) >>> 0;
}

export function covers(prefix: Prefix, address: number): boolean {
  return firstAddress(prefix) <= address && address <= lastAddress(prefix);
}

function mask(length: number): number {
  return length === 0 ? 0 : 0xffff_ffff << (32 - length);
}
