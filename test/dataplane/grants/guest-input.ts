import type { GrantAccess } from '#dataplane/grants/grant-access.js';

/** What the thread is to do: to grant at random until `stop` is set, or to end in the middle of it. */
export type GuestInput = {
  readonly access: Pick<GrantAccess, 'capacity' | 'ledger' | 'gate' | 'age'>;
  readonly grants: SharedArrayBuffer;
  readonly patterns: SharedArrayBuffer;
  readonly stop: SharedArrayBuffer;
  readonly seed: number;
  readonly dies: boolean;
};
export const TEXTS = Array.from({ length: 24 }, (_, at) => `p${at}.test`);
export const ADDRESSES = 500;
export const SECOND_NS = 1_000_000_000;
