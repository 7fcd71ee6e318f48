import type { PassedObject } from './bpf-object-handle.js';

/**
 * The BPF program and maps with which the service plane (TLS and HTTP inspection) makes the datapath forward
 * a connection that it has decided.
 */
export type SpliceOffload = {
  readonly program: PassedObject;
  /** The BPF map `joins`, with an entry for each connection that the datapath forwards. */
  readonly spliceMap: PassedObject;
  /**
   * The map `joiners`: for each offloader (a service-plane thread), the time until which the datapath
   * forwards its connections.
   */
  readonly offloaderMap: PassedObject;
  /** The packet mark (`SO_MARK`) of packets that the datapath passes without classification. */
  readonly mark: number;
  /**
   * `idleMs`: after this time without a packet, the datapath ends a connection. `endedMs`: after this time,
   * the datapath removes an ended connection from its table. Both times are in milliseconds.
   */
  readonly idleMs: number;
  readonly endedMs: number;
};
