import type { ActionWord } from '#contracts/policy/policy-document.js';
import { type Action, IPPROTO } from '#contracts/policy/policy-model.js';

/**
 * Parses an action keyword such as `allow`, in upper or lower case. Returns undefined for any other text.
 */
export function parseAction(word: ActionWord): Action | undefined {
  if (word === 'allow' || word === 'deny') return word;
  const lower = word.toLowerCase();
  return lower === 'allow' || lower === 'deny' ? lower : undefined;
}

const NAMES = new Map<string, number | 'any'>([
  ['any', 'any'],
  ['icmp', IPPROTO.icmp],
  ['icmpv6', IPPROTO.icmpv6],
  ['tcp', IPPROTO.tcp],
  ['udp', IPPROTO.udp],
]);

/**
 * Parses a protocol: a number, or `tcp`, `udp`, `icmp`, `icmpv6` or `any` in upper or lower case. A missing
 * value means `any`. Returns undefined for an invalid value.
 */
export function parseProtocol(value: string | number | undefined): number | 'any' | undefined {
  if (value === undefined) return 'any';
  if (typeof value === 'number') return Number.isInteger(value) && value >= 0 && value <= 255 ? value + 0 : undefined;
  return NAMES.get(value) ?? NAMES.get(value.toLowerCase());
}
