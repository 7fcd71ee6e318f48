import type { EventSource } from '#contracts/event-source.js';
import type { SeenConnections } from '#contracts/seen-connection.js';
import type { SeenLookups } from '#contracts/seen-lookup.js';
import type { FindingDelta } from './findings/finding.js';
import type { FindingPage, FindingQuery } from './findings/finding-filter.js';
import type { ObserverStats } from './stats.js';
import type { Frame } from './wiretap/frame.js';
import type { WiretapFilter } from './wiretap/wiretap-filter.js';

/** Requests from the main thread to the observer thread. Each request has a response. */
export type ObserverRequests = {
  findings(query: FindingQuery): FindingPage;
  stats(): Omit<ObserverStats, 'readers' | 'lostReader'>;
  close(): void;
};

/**
 * Which optional events a wiretap reader needs. The node does not produce an optional event without a reader.
 * `lookups` and `connections` mean allowed ones; denied ones are always produced.
 */
export type Wanted = { readonly flows: boolean; readonly lookups: boolean; readonly connections: boolean };

export type ToObserver =
  | { readonly kind: 'read_events'; readonly source: EventSource }
  | { readonly kind: 'see'; readonly seen: SeenLookups }
  | { readonly kind: 'see_connections'; readonly seen: SeenConnections }
  | { readonly kind: 'record'; readonly delta: FindingDelta }
  | { readonly kind: 'open'; readonly reader: number; readonly filter: WiretapFilter; readonly sinceMs: number }
  | { readonly kind: 'more'; readonly reader: number }
  | { readonly kind: 'closed'; readonly reader: number }
  | { readonly kind: 'written'; readonly bytes: number };

export type FromObserver =
  | { readonly kind: 'frame'; readonly frame: Frame }
  | { readonly kind: 'refused'; readonly reader: number }
  | { readonly kind: 'joined'; readonly reader: number; readonly channel: number }
  | { readonly kind: 'wanted'; readonly wanted: Wanted }
  /**
   * A problem that the operator must see in the log. A message `relief` with the same code reports the end of
   * the problem.
   */
  | { readonly kind: 'trouble'; readonly code: string | null; readonly message: string }
  /** The problem with this code has ended. */
  | { readonly kind: 'relief'; readonly code: string; readonly message: string };
