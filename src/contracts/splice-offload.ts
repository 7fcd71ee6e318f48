import type { PassedObject } from './bpf-object-handle.js';

/** The BPF objects by which the service plane hands connections that it decided over to the datapath. */
export type SpliceOffload = {
  readonly program: PassedObject;
  readonly joins: PassedObject;
  readonly joiners: PassedObject;
  /** The packet mark (`SO_MARK`) with which packets pass the datapath without classification. */
  readonly mark: number;
  /**
   * `idleMs`: how long a connection may stay idle. `endedMs`: how long the datapath keeps an ended
   * connection. Both times are in milliseconds.
   */
  readonly idleMs: number;
  readonly endedMs: number;
};
