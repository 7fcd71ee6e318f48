import { mask } from './ipv4.js';
import type { Prefix } from './model.js';

export function covers(prefix: Prefix, address: number): boolean {
  return mask(address, prefix.length) === prefix.address;
}
