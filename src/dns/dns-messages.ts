import type { MessagePort } from 'node:worker_threads';
import type { KnownName } from '#contracts/known-name.js';
import type { Lookups } from '#contracts/lookups.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';
import type { DnsOptions } from './dns-options.js';
import type { DnsStats } from './dns-proxy.js';

/** What the thread begins with. */
export type Given = { readonly options: DnsOptions; readonly descriptors: SharedArrayBuffer };
/** What is said to the thread. */
export type ToThread =
  | { readonly kind: 'use'; readonly lookups: Lookups }
  | { readonly kind: 'grant_by'; readonly port: MessagePort | null }
  | { readonly kind: 'lookups_wanted'; readonly wanted: boolean };
/** What it is asked. */
export type DnsAsks = {
  open(): void;
  close(): void;
  stats(): DnsStats;
  names(): readonly KnownName[];
};
/** What it says. */
export type FromThread =
  | { readonly kind: 'aliveness'; readonly alive: readonly string[]; readonly dead: readonly string[] }
  | { readonly kind: 'seen'; readonly seen: SeenLookups };
