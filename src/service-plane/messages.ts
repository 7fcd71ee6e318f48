import type { MessagePort } from 'node:worker_threads';
import type { InspectionImage } from '#policy/inspection.js';
import type { SeenConnections } from '#policy/seen-connection.js';
import type { InterceptCa } from './ca/intercept-ca.js';
import type { ServicePlaneOptions } from './options.js';
import type { ServicePlaneStats } from './service-plane.js';

/** What a thread begins with. */
export type Given = {
  readonly options: ServicePlaneOptions;
  /** See `LeafContexts`. */
  readonly ticketKeys: Uint8Array;
};
/** What is said to a thread. */
export type ToThread =
  | { readonly kind: 'use'; readonly inspection: InspectionImage }
  | { readonly kind: 'use_ca'; readonly ca: InterceptCa | null }
  | { readonly kind: 'grants_by'; readonly port: MessagePort }
  | { readonly kind: 'allowed_wanted'; readonly wanted: boolean }
  | { readonly kind: 'ask'; readonly id: number; readonly what: keyof Asks };
/** What it is asked, and what comes back. */
export type Asks = { readonly open: undefined; readonly close: undefined; readonly stats: ServicePlaneStats };
/** What it says. */
export type FromThread =
  | { readonly kind: 'answer'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'failure'; readonly id: number; readonly message: string }
  | { readonly kind: 'seen'; readonly seen: SeenConnections };
