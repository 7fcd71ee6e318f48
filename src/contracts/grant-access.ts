import type { MessagePort } from 'node:worker_threads';
import type { PassedObject } from './bpf-object-handle.js';

/**
 * The port by which a thread requests grants, and the shared memory that records that the thread ended while
 * it wrote grants itself (`Gate`).
 */
export type GrantDoor = { readonly port: MessagePort; readonly gate: SharedArrayBuffer };

/** Maps and settings by which another thread writes grants itself, as long as the table names `owner`. */
export type GrantAccess = {
  readonly grants: PassedObject;
  readonly patterns: PassedObject;
  readonly capacity: number;
  readonly ledger: SharedArrayBuffer;
  readonly gate: SharedArrayBuffer;
  readonly owner: number;
};
