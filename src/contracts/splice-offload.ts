import type { PassedObject } from './bpf-object-handle.js';

/** Where connections that the service plane has decided are left to the datapath. */
export type SpliceOffload = {
  readonly program: PassedObject;
  readonly joins: PassedObject;
  readonly joiners: PassedObject;
  /** Of packets that pass unjudged. */
  readonly mark: number;
  /** How long a connection may be still, and how long one that has ended is kept. */
  readonly idleMs: number;
  readonly endedMs: number;
};
