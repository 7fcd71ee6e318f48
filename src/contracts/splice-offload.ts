import type { PassedObject } from './bpf-object-handle.js';

/** The BPF objects by which the service plane hands decided connections over to the datapath. */
export type SpliceOffload = {
  readonly program: PassedObject;
  readonly joins: PassedObject;
  readonly joiners: PassedObject;
  /** The mark of packets that pass without classification. */
  readonly mark: number;
  /** How long a connection may be idle, and how long an ended connection is kept. */
  readonly idleMs: number;
  readonly endedMs: number;
};
