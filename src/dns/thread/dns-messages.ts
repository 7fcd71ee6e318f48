import type { MessagePort } from 'node:worker_threads';
import type { DnsSettings } from '#contracts/config/config-reload.js';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import type { DnsStats } from '#contracts/dns/dns-stats.js';
import type { KnownName, SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { DnsOptions } from '#dns/dns-options.js';
import type { SocketDescriptors } from '#sockets/listening/listening-sockets.js';

export type DnsWorkerData = { readonly options: DnsOptions; readonly descriptors: SharedArrayBuffer };
export type ToDnsThread =
  | { readonly kind: 'members'; readonly list: MemberList }
  | { readonly kind: 'use'; readonly lookups: Lookups }
  | { readonly kind: 'set_grant_port'; readonly port: MessagePort | null }
  | { readonly kind: 'lookups_wanted'; readonly wanted: boolean };
/** Requests from the main thread to the DNS thread. The DNS thread sends a response to each request. */
export type DnsRequests = {
  /** Serve the listening sockets `descriptors`; see `LocalDnsProxy.open`. */
  open(descriptors: SocketDescriptors, waitMs: number): void;
  change(settings: DnsSettings, descriptors: SocketDescriptors): void;
  changeMembers(change: MembershipChange): void;
  replaceMembers(list: MemberList): void;
  close(): void;
  stats(): DnsStats;
  names(): readonly KnownName[];
};
export type FromDnsThread =
  | { readonly kind: 'aliveness'; readonly alive: readonly string[]; readonly dead: readonly string[] }
  | { readonly kind: 'seen'; readonly seen: SeenLookups };
