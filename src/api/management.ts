import type { Operations } from '#actors/operations.js';
import type { PeerOperations } from '#cluster/operations.js';
import type { Refusal } from '#contracts/refusal.js';
import type { AuditEvent } from '#observe/findings/audit-event.js';
import type { FindingPage, FindingQuery } from '#observe/findings/finding-filter.js';
import type { SeenFlowPage, SeenFlowQuery } from '#observe/flow-history/listed-flows.js';
import type { Metrics } from '#observe/metrics/metrics.js';
import type { NodeStats } from '#observe/metrics/stats.js';
import type { StatsSeriesView } from '#observe/metrics/stats-series.js';
import type { Observer } from '#observe/observer.js';
import type { Sysdumps } from '#observe/sysdump/sysdump.js';
import type { InterceptCaSetting } from '#service-plane/ca/intercept-ca-setting.js';
import type { Authority } from '#store/tokens/authority.js';

/**
 * The interface of the node for API routes, which must not use other objects of the node.
 * `src/node/management.ts` implements it.
 */
export type Management = Operations & {
  /** Facts that hold while the process runs. `kernel`: its release. `startedAt`: ISO 8601, UTC. */
  readonly node: {
    readonly id: string;
    readonly version: string;
    readonly kernel: string;
    readonly startedAt: string;
    readonly clusterEnabled: boolean;
  };
  readonly interceptCa: Omit<InterceptCaSetting, 'changed'>;
  readonly peers: PeerOperations;
  readonly tokens: Pick<Authority, 'verify' | 'issue' | 'list' | 'revoke'>;
  readonly sessions: Authority['sessions'];
  readonly wiretap: Pick<Observer, 'read'> & {
    /** For how many milliseconds the node keeps wiretap messages, for readers that connect later. */
    readonly replayMs: number;
  };
  readonly findings: {
    query(query: FindingQuery): Promise<FindingPage | Refusal>;
    readonly nodeId: string;
  };
  /** Returns the flows that this node has seen; see `Observer.listSeenFlows`. */
  readonly seenFlows: (query: SeenFlowQuery) => Promise<SeenFlowPage | null>;
  /** Records an API event as a finding. Returns immediately and never throws. */
  record(event: AuditEvent): void;
  stats(): Promise<NodeStats>;
  /** Returns the counters of the newest `steps` steps of the last hour. */
  statsSeries(steps: number): StatsSeriesView;
  readonly metrics: Metrics;
  readonly support: Pick<Sysdumps, 'begin'>;
};
