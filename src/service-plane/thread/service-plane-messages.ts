import type { MessagePort } from 'node:worker_threads';
import type { ServicePlaneSettings } from '#contracts/config/config-reload.js';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import type { ServicePlaneStats } from '#contracts/service-plane/service-plane-stats.js';
import type { InterceptCa } from '#service-plane/ca/intercept-ca.js';
import type { ServicePlaneOptions } from '#service-plane/service-plane-options.js';
import type { SharedHandover } from '#sockets/listening/handover.js';

/** The `workerData` of a service-plane thread. */
export type PlaneWorkerData = {
  readonly options: ServicePlaneOptions;
  /** The 48-byte key for TLS session tickets, equal in all threads; see `LeafContexts`. */
  readonly ticketKeys: Uint8Array;
  readonly splices: SplicerWorkerData;
};
/** The `workerData` of a splice thread. `port` connects the splice thread with its service-plane thread. */
export type SplicerWorkerData = {
  readonly port: MessagePort;
  readonly handover: SharedHandover;
  readonly thread: ThreadNumber;
};
/**
 * `number`: the index of a thread, from 0. `count`: how many threads the service plane (TLS and HTTP
 * inspection) has.
 */
export type ThreadNumber = { readonly number: number; readonly count: number };
/**
 * A message to the splice thread. `pair` with two descriptors: splice these two sockets. `pair` null: reset
 * both sockets of the pair `id`. `suspended`: forward no more bytes of the pair, or forward them again.
 * `spliceBy`: offload connections to the datapath from now on. The splice thread sends back the ids of ended
 * pairs.
 */
export type SpliceOrder =
  | { readonly id: number; readonly pair: readonly [number, number] | null }
  | { readonly id: number; readonly suspended: boolean }
  | { readonly spliceBy: SpliceOffload };
/** Messages from the main thread to a thread of the TLS and HTTP inspection (service plane). */
export type ToPlaneThread =
  | { readonly kind: 'members'; readonly list: MemberList }
  | { readonly kind: 'use'; readonly inspection: InspectionImage }
  /** Accept connections by this policy before the grants can be read; see `LocalServicePlane.accept`. */
  | { readonly kind: 'accept'; readonly inspection: InspectionImage }
  | { readonly kind: 'use_ca'; readonly ca: InterceptCa | null }
  | { readonly kind: 'grants_by'; readonly port: MessagePort }
  | { readonly kind: 'set_splice_offload'; readonly point: SpliceOffload }
  | { readonly kind: 'allowed_wanted'; readonly wanted: boolean };
/** Requests from the main thread to a service-plane thread. Each request gets a response. */
export type PlaneRequests = {
  /** Accept connections on the listening sockets `fds`; see `LocalServicePlane.open`. */
  open(fds: readonly number[], waitMs: number): void;
  change(settings: ServicePlaneSettings): void;
  changeMembers(change: MembershipChange): void;
  replaceMembers(list: MemberList): void;
  /** Returns when the open connections are decided by the policy of the last message `use`. */
  decided(): void;
  close(): void;
  stats(): ThreadStats;
};
export type ThreadStats = Omit<ServicePlaneStats, 'spliceFault'>;
/** Messages from a service-plane thread to the main thread. */
export type FromPlaneThread =
  | { readonly kind: 'seen'; readonly seen: SeenConnections }
  | { readonly kind: 'upstream_ca'; readonly fault: string | null };
/** Messages from a splice thread to the main thread; see `ServicePlaneStats.spliceFault`. */
export type FromSplicer = { readonly spliceFault: string | null };
