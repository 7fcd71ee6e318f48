import type { GrantAccess } from '#contracts/grant-access.js';

/** What the thread is to do: to grant at random until `stop` is set, or to end in the middle of it. */
export type GuestInput = {
  readonly access: Pick<GrantAccess, 'capacity' | 'ledger' | 'gate' | 'owner'>;
  readonly grants: SharedArrayBuffer;
  readonly patterns: SharedArrayBuffer;
  readonly stop: SharedArrayBuffer;
  readonly seed: number;
  readonly dies: boolean;
};
export const TEXTS = Array.from({ length: 24 }, (_, at) => `p${at}.test`);
export const ADDRESSES = 500;
export const SECOND_NS = 1_000_000_000;

const UNIT_NS = 2 ** 27;
/** A time to come that says whose it is. */
export function expiryNsOf(text: string, cycles: number): number {
  return (cycles * TEXTS.length + TEXTS.indexOf(text)) * UNIT_NS;
}
export function textOf(expiresAtNs: bigint): string | undefined {
  return TEXTS[Number(expiresAtNs / BigInt(UNIT_NS)) % TEXTS.length];
}
