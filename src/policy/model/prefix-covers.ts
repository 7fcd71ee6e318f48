import type { Prefix } from '#contracts/policy-model.js';
import { mask } from './ipv4.js';

export function covers(prefix: Prefix, address: number): boolean {
  return mask(address, prefix.length) === prefix.address;
}
