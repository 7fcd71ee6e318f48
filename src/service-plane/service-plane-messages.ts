import type { MessagePort } from 'node:worker_threads';
import type { InspectionImage } from '#contracts/inspection-image.js';
import type { SeenConnections } from '#contracts/seen-connection.js';
import type { SpliceOffload } from '#contracts/splice-offload.js';
import type { SharedHandover } from '#sockets/handover.js';
import type { InterceptCa } from './ca/intercept-ca.js';
import type { ServicePlaneStats } from './service-plane.js';
import type { ServicePlaneOptions } from './service-plane-options.js';

/** What a thread begins with. */
export type Given = {
  readonly options: ServicePlaneOptions;
  /** See `LeafContexts`. */
  readonly ticketKeys: Uint8Array;
  readonly splices: GivenToSplice;
};
/** What the thread that carries its bytes begins with, and by what it talks to it. */
export type GivenToSplice = {
  readonly port: MessagePort;
  readonly handover: SharedHandover;
  readonly thread: ThreadNumber;
};
/** Its number among those of the plane, and how many these are. */
export type ThreadNumber = { readonly number: number; readonly count: number };
/**
 * Two descriptors that are to be carried to each other, or null: the pair is to be reset. Or where it may leave them to the
 * datapath. Ids come back, of what is over.
 */
export type SpliceOrder =
  | { readonly id: number; readonly pair: readonly [number, number] | null }
  | { readonly joinBy: SpliceOffload };
/** What is said to a thread. */
export type ToThread =
  | { readonly kind: 'use'; readonly inspection: InspectionImage }
  | { readonly kind: 'use_ca'; readonly ca: InterceptCa | null }
  | { readonly kind: 'grants_by'; readonly port: MessagePort }
  | { readonly kind: 'join_by'; readonly point: SpliceOffload }
  | { readonly kind: 'allowed_wanted'; readonly wanted: boolean };
/** What it is asked. */
export type PlaneAsks = { open(): void; close(): void; stats(): ThreadStats };
export type ThreadStats = Omit<ServicePlaneStats, 'joinFault'>;
/** What it says. */
export type FromThread =
  | { readonly kind: 'seen'; readonly seen: SeenConnections }
  | { readonly kind: 'upstream_ca'; readonly fault: string | null };
/** What the thread that carries its bytes says: see `ServicePlaneStats.joinFault`. */
export type FromSplicing = { readonly joinFault: string | null };
