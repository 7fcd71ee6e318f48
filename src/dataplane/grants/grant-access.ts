import type { MessagePort } from 'node:worker_threads';

/** Where a thread asks for grants, and what says that it ended while it wrote some itself. */
export type GrantDoor = { readonly port: MessagePort; readonly gate: SharedArrayBuffer };

/** What another thread needs to write grants itself, until the gate's age is another: maps by their ids in the kernel. */
export type GrantAccess = {
  readonly grants: number;
  readonly patterns: number;
  readonly capacity: number;
  readonly ledger: SharedArrayBuffer;
  readonly gate: SharedArrayBuffer;
  readonly age: number;
};
