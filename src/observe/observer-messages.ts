import type { SeenFlows } from '#contracts/analysis/seen-flows.js';
import type { EventSource } from '#contracts/datapath/event-source.js';
import type { SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { OwnerChanges } from '#contracts/kubernetes/address-owner.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import type { ObserverStats } from '#observe/metrics/stats.js';
import type { FindingDelta } from './findings/finding.js';
import type { FindingPage, FindingQuery } from './findings/finding-filter.js';
import type { SeenFlowPage, SeenFlowQuery } from './flow-history/listed-flows.js';
import type { Frame } from './wiretap/frame.js';
import type { WiretapFilter } from './wiretap/wiretap-filter.js';

/** Requests from the main thread to the observer thread. Each request has a response. */
export type ObserverRequests = {
  findings(query: FindingQuery): FindingPage;
  stats(): Omit<ObserverStats, 'readers' | 'lostReader'>;
  /** Returns the recorded flows; null if none are recorded. The buffers are shared, not copied. */
  seenFlows(): SeenFlows | null;
  listSeenFlows(query: SeenFlowQuery): SeenFlowPage | null;
  close(): void;
};

/**
 * The optional events that the observer needs for wiretap readers, for the replay buffer or for the flow
 * history. The node does not
 * produce optional events that the observer does not need. `lookups` and `connections` mean allowed ones; the
 * node always produces the events of denied ones.
 */
export type Wanted = { readonly flows: boolean; readonly lookups: boolean; readonly connections: boolean };

export type ToObserver =
  | { readonly kind: 'read_events'; readonly source: EventSource }
  | { readonly kind: 'see'; readonly seen: SeenLookups }
  | { readonly kind: 'see_connections'; readonly seen: SeenConnections }
  | { readonly kind: 'see_owners'; readonly changes: OwnerChanges }
  | { readonly kind: 'record'; readonly delta: FindingDelta }
  /** Whether the datapath sends events (D34). */
  | { readonly kind: 'recording'; readonly isRecording: boolean }
  | {
      readonly kind: 'open';
      readonly reader: number;
      readonly filter: WiretapFilter;
      readonly sinceMs: number;
      readonly foldMs: number;
    }
  | { readonly kind: 'more'; readonly reader: number }
  | { readonly kind: 'closed'; readonly reader: number }
  | { readonly kind: 'written'; readonly bytes: number };

export type FromObserver =
  | { readonly kind: 'frame'; readonly frame: Frame }
  | { readonly kind: 'refused'; readonly reader: number }
  | { readonly kind: 'subscribed'; readonly reader: number; readonly channel: number }
  | { readonly kind: 'wanted'; readonly wanted: Wanted }
  /**
   * Reports a problem that the operator must see in the log. `code` is null if the failure has no error code.
   */
  | { readonly kind: 'trouble'; readonly code: string | null; readonly message: string }
  /**
   * Reports that a problem has ended. `code` names this success, for example `findings_stored`, and is not
   * the code of the problem.
   */
  | { readonly kind: 'relief'; readonly code: string; readonly message: string };
