import type { MessagePort } from 'node:worker_threads';
import type { InspectionImage } from '#contracts/inspection-image.js';
import type { SeenConnections } from '#contracts/seen-connection.js';
import type { SpliceOffload } from '#contracts/splice-offload.js';
import type { SharedHandover } from '#sockets/handover.js';
import type { InterceptCa } from './ca/intercept-ca.js';
import type { ServicePlaneStats } from './service-plane.js';
import type { ServicePlaneOptions } from './service-plane-options.js';

/** The `workerData` of a thread of the service plane. */
export type PlaneWorkerData = {
  readonly options: ServicePlaneOptions;
  /** See `LeafContexts`. */
  readonly ticketKeys: Uint8Array;
  readonly splices: SplicerWorkerData;
};
/** The `workerData` of the thread that splices connections, with the port between the two threads. */
export type SplicerWorkerData = {
  readonly port: MessagePort;
  readonly handover: SharedHandover;
  readonly thread: ThreadNumber;
};
/** The thread's number among those of the plane, and their count. */
export type ThreadNumber = { readonly number: number; readonly count: number };
/**
 * An order to the splicing thread: to splice two descriptors; to reset the pair (null); or to offload
 * connections to the datapath. The splicing thread answers with the ids of ended pairs.
 */
export type SpliceOrder =
  | { readonly id: number; readonly pair: readonly [number, number] | null }
  | { readonly joinBy: SpliceOffload };
/** Messages to a thread. */
export type ToPlaneThread =
  | { readonly kind: 'use'; readonly inspection: InspectionImage }
  | { readonly kind: 'use_ca'; readonly ca: InterceptCa | null }
  | { readonly kind: 'grants_by'; readonly port: MessagePort }
  | { readonly kind: 'join_by'; readonly point: SpliceOffload }
  | { readonly kind: 'allowed_wanted'; readonly wanted: boolean };
/** Requests to a thread; each has a response. */
export type PlaneRequests = { open(): void; close(): void; stats(): ThreadStats };
export type ThreadStats = Omit<ServicePlaneStats, 'joinFault'>;
/** Messages from a thread. */
export type FromPlaneThread =
  | { readonly kind: 'seen'; readonly seen: SeenConnections }
  | { readonly kind: 'upstream_ca'; readonly fault: string | null };
/** Messages from the splicing thread: see `ServicePlaneStats.joinFault`. */
export type FromSplicer = { readonly joinFault: string | null };
