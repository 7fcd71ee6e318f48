import type { MessagePort } from 'node:worker_threads';
import type { InspectionImage } from '#contracts/inspection-image.js';
import type { SeenConnections } from '#contracts/seen-connection.js';
import type { SpliceOffload } from '#contracts/splice-offload.js';
import type { InterceptCa } from './ca/intercept-ca.js';

/**
 * The service plane as the `servicePlane` actor uses it. The plane runs in worker threads; no per-connection
 * work passes through this interface.
 */
export type ServicePlane = {
  /** Listens in every thread. Connections are reset until `use`. Rejects if the address cannot be bound. */
  open(): Promise<void>;
  /** Decides by this policy from now on; also decides existing connections again (D19b). */
  use(inspection: InspectionImage): void;
  /**
   * Signs with this CA from now on; null: nothing is intercepted, and connections that a rule would intercept
   * are denied.
   */
  useCa(ca: InterceptCa | null): void;
  /**
   * The number of threads. `grantsBy` takes one port for each, by which the thread requests the grants of
   * addresses; see `Datapath.grantPort`.
   */
  readonly threads: number;
  grantsBy(ports: readonly MessagePort[]): void;
  /** Offloads decided connections to the datapath; see `Datapath.joinPoint`. */
  joinBy(point: SpliceOffload): void;
  stats(): Promise<ServicePlaneStats>;
  /** First calls the listener with the current faults. */
  watch(listener: (change: ServicePlaneChange) => void): () => void;
  observe(listener: (seen: SeenConnections) => void): () => void;
  /**
   * Whether allowed connections and requests are reported too; false at first. The setting survives a
   * reopening of the plane.
   */
  setAllowedWanted(wanted: boolean): void;
  /** Resets all connections, and closes the sockets. */
  close(): Promise<void>;
};

export type ServicePlaneChange =
  | { readonly type: 'worker_died'; readonly reason: string }
  /** See `ServicePlaneStats.upstreamCaFault` and `joinFault`; null after `open`. */
  | { readonly type: 'upstream_ca_changed' | 'joining_changed'; readonly fault: string | null };

/** Counts since the plane was opened, over all threads. */
export type ServicePlaneStats = {
  /** Connections that were decided without their requests. */
  readonly allow: number;
  readonly deny: number;
  readonly audit: number;
  readonly intercepted: number;
  /** Requests of intercepted connections. */
  readonly requestsAllow: number;
  readonly requestsDeny: number;
  readonly requestsAudit: number;
  /** Responses that violated the rule that allowed their request. */
  readonly responsesDeny: number;
  readonly responsesAudit: number;
  /** Current connections. */
  readonly connections: number;
  /** Connections and requests that were not served, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  /** Why the trusted authorities of servers cannot be read; the previous ones stay in use. Null: no fault. */
  readonly upstreamCaFault: string | null;
  /**
   * Why connections cannot be offloaded to the datapath; the node's sockets then carry their bytes. Null: no
   * fault.
   */
  readonly joinFault: string | null;
};
