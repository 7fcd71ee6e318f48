import { IPPROTO } from '#contracts/policy-model.js';

const NAMES = new Map<string, number | 'any'>([
  ['any', 'any'],
  ['icmp', IPPROTO.icmp],
  ['tcp', IPPROTO.tcp],
  ['udp', IPPROTO.udp],
]);

/**
 * Parses a ProtoValue: `tcp`, `udp`, `icmp` or `any` in any case, or a number. If it is undefined, the
 * protocol is `any`.
 */
export function parseProtocol(value: string | number | undefined): number | 'any' | undefined {
  if (value === undefined) return 'any';
  if (typeof value === 'number') return Number.isInteger(value) && value >= 0 && value <= 255 ? value + 0 : undefined;
  return NAMES.get(value) ?? NAMES.get(value.toLowerCase());
}
