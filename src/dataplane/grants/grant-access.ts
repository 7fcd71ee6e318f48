import type { MessagePort } from 'node:worker_threads';

/** Where a thread asks for grants, and where it is to be said that it ended while it wrote some itself (`Gate`). */
export type GrantDoor = { readonly port: MessagePort; readonly gate: SharedArrayBuffer };

/** What another thread needs to write grants itself, as long as the table says `owner`: maps by their ids in the kernel. */
export type GrantAccess = {
  readonly grants: number;
  readonly patterns: number;
  readonly capacity: number;
  readonly ledger: SharedArrayBuffer;
  readonly gate: SharedArrayBuffer;
  readonly owner: number;
};
