import type { SeenLookup } from '#contracts/dns/seen-lookup.js';
import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import type { EventBatch } from '#dataplane/events/batch.js';

/** A batch of events of one kind that arrived at the observer together. */
export type Seen =
  | { readonly kind: 'events'; readonly batch: EventBatch }
  | { readonly kind: 'lookups'; readonly lookups: readonly SeenLookup[] }
  | { readonly kind: 'connections'; readonly connections: readonly SeenConnection[] };

const LOOKUP_BYTES = 200;
/** The approximate size in bytes of a connection event without its HTTP path. */
const CONNECTION_BYTES = 400;

/** Returns the number of wiretap messages of a batch. */
export function sizeOf(seen: Seen): number {
  switch (seen.kind) {
    case 'events':
      return seen.batch.count;
    case 'lookups':
      return seen.lookups.length;
    case 'connections':
      return seen.connections.length;
  }
}

/** Returns the approximate size of a batch in memory, in bytes. */
export function bytesOf(seen: Seen): number {
  switch (seen.kind) {
    case 'events':
      return seen.batch.words.byteLength;
    case 'lookups':
      return seen.lookups.length * LOOKUP_BYTES;
    case 'connections':
      return seen.connections.reduce((sum, { http }) => sum + CONNECTION_BYTES + (http?.path.length ?? 0), 0);
  }
}
