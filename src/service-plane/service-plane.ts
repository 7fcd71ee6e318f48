import type { MessagePort } from 'node:worker_threads';
import type { InspectionImage } from '#contracts/inspection-image.js';
import type { SeenConnections } from '#contracts/seen-connection.js';
import type { SpliceOffload } from '#contracts/splice-offload.js';
import type { InterceptCa } from './ca/intercept-ca.js';

/** What the service plane part asks of the plane. It runs in worker threads; nothing that a connection does passes through here. */
export type ServicePlane = {
  /** Listens in every thread. Connections are reset until `use`. Rejects where the address cannot be bound. */
  open(): Promise<void>;
  /** Judges by this from now on, also the connections that there are (D19b). */
  use(inspection: InspectionImage): void;
  /** Signs by this from now on; null: nothing is intercepted, and what a rule would intercept fails closed. */
  useCa(ca: InterceptCa | null): void;
  /** Where threads ask for what addresses are granted for; see `Datapath.grantPort`. One for each thread. */
  readonly threads: number;
  grantsBy(ports: readonly MessagePort[]): void;
  /** Where what is decided may be left to the datapath; see `Datapath.joinPoint`. */
  joinBy(point: SpliceOffload): void;
  stats(): Promise<ServicePlaneStats>;
  /** Told first of what is so already. */
  watch(listener: (change: ServicePlaneChange) => void): () => void;
  observe(listener: (seen: SeenConnections) => void): () => void;
  /** Whether what is allowed is told of too; not at first. Holds when the plane is opened again. */
  setAllowedWanted(wanted: boolean): void;
  /** Resets what there is, and lets go of the sockets. */
  close(): Promise<void>;
};

export type ServicePlaneChange =
  | { readonly type: 'worker_died'; readonly reason: string }
  /** See `ServicePlaneStats.upstreamCaFault` and `joinFault`; null after `open`. */
  | { readonly type: 'upstream_ca_changed' | 'joining_changed'; readonly fault: string | null };

/** Since the plane was opened, over all threads. */
export type ServicePlaneStats = {
  /** Connections that were decided without their requests. */
  readonly allow: number;
  readonly deny: number;
  readonly audit: number;
  readonly intercepted: number;
  /** Requests of those that were intercepted. */
  readonly requestsAllow: number;
  readonly requestsDeny: number;
  readonly requestsAudit: number;
  /** Responses that broke the rule which let their request pass. */
  readonly responsesDeny: number;
  readonly responsesAudit: number;
  /** Connections now. */
  readonly connections: number;
  /** What was not served, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  /** What keeps the authorities of servers from being read; those of before count meanwhile. Null: nothing. */
  readonly upstreamCaFault: string | null;
  /** What keeps connections from being left to the datapath; they are carried by the node's sockets. Null: nothing. */
  readonly joinFault: string | null;
};
