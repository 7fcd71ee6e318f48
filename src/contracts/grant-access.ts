import type { MessagePort } from 'node:worker_threads';
import type { PassedObject } from './bpf-object-handle.js';

/** Where a thread asks for grants, and where it is to be said that it ended while it wrote some itself (`Gate`). */
export type GrantDoor = { readonly port: MessagePort; readonly gate: SharedArrayBuffer };

/** Maps and settings by which another thread writes grants itself, as long as the table says `owner`. */
export type GrantAccess = {
  readonly grants: PassedObject;
  readonly patterns: PassedObject;
  readonly capacity: number;
  readonly ledger: SharedArrayBuffer;
  readonly gate: SharedArrayBuffer;
  readonly owner: number;
};
