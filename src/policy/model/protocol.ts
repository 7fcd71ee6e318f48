import { IPPROTO } from '#contracts/policy-model.js';

const NAMES = new Map<string, number | 'any'>([
  ['any', 'any'],
  ['icmp', IPPROTO.icmp],
  ['tcp', IPPROTO.tcp],
  ['udp', IPPROTO.udp],
]);

/**
 * Parses a protocol: a number, or `tcp`, `udp`, `icmp` or `any` in upper or lower case. A missing value means
 * `any`. Returns undefined for an invalid value.
 */
export function parseProtocol(value: string | number | undefined): number | 'any' | undefined {
  if (value === undefined) return 'any';
  if (typeof value === 'number') return Number.isInteger(value) && value >= 0 && value <= 255 ? value + 0 : undefined;
  return NAMES.get(value) ?? NAMES.get(value.toLowerCase());
}
