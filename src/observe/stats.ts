/** A kernel counter, 64 bits wide. */
type Counter = { readonly packets: bigint; readonly bytes: bigint };

type DataplaneStats = {
  readonly activeFlows: number;
  /** Flows, of those above, whose first packet has no reply yet. */
  readonly halfOpenFlows: number;
  /** The last sweep of the flow tables. */
  readonly sweep: { readonly agoMs: number; readonly tookMs: number };
  readonly verdicts: { readonly allow: Counter; readonly deny: Counter; readonly audit: Counter };
  /**
   * Inspected connections: packets sent to the service plane, and packets forwarded in the kernel after
   * splicing.
   */
  readonly inspected: { readonly handed: Counter; readonly joined: Counter };
  /** Keyed by the name of the drop reason (D21). */
  readonly drops: Readonly<Record<string, Counter>>;
  /** Packets passed without a verdict because of `dataplane.non_ipv4`. */
  readonly nonIpv4Passed: Counter;
  readonly flowsOpened: bigint;
  readonly flowsClosed: bigint;
  /** Drop reasons for which the flow table currently refuses new flows. */
  readonly refusing: readonly ('flow_table_full' | 'flow_share')[];
  /** How passed packets are forwarded now, and why. */
  readonly forwarding: { readonly way: 'stack' | 'direct'; readonly reason: string };
  /** Whether the first packets of flows use the copy of the routes. */
  readonly routesCopied: boolean;
  /** Addresses that were not learned because the grant table was full. */
  readonly grantsRefused: number;
  /**
   * Events: sent; lost because the ring buffer was full; suppressed because the source exceeded its share.
   */
  readonly events: { readonly sent: bigint; readonly lost: bigint; readonly suppressed: bigint };
  readonly maps: Readonly<Record<string, { readonly entries: number; readonly capacity: number }>>;
};

export type DnsStats = {
  readonly queriesAllow: number;
  readonly queriesDeny: number;
  readonly nxdomainPolicy: number;
  readonly nxdomainUpstream: number;
  readonly servfail: number;
  /** Granted addresses, counted once per pattern. */
  readonly grants: number;
  /**
   * Time from a DNS answer with new addresses until they were in force, over the last few thousand such
   * answers. Null before the first one.
   */
  readonly learning: { readonly medianMs: number; readonly p99Ms: number } | null;
  readonly cacheHits: number;
  readonly cacheMisses: number;
  readonly cacheEntries: number;
  readonly cacheBytes: number;
  /** Queries that were refused or not answered, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  readonly upstreams: readonly {
    readonly address: string;
    readonly alive: boolean;
    readonly queries: number;
    readonly timeouts: number;
    readonly latencyMs: number | null;
  }[];
};
/** Counters of the observer since its start. */
export type ObserverStats = {
  /** Current wiretap clients. */
  readonly readers: number;
  /** Messages sent to readers, counted once per reader. */
  readonly messages: number;
  /** Messages that readers did not receive because they were too slow. */
  readonly lostReader: number;
  /** Events lost between the kernel and the node. */
  readonly lostKernel: number;
  /** Events suppressed because the source exceeded its share. */
  readonly lostSourceShare: number;
  /** Events lost because the service plane had no room for more. */
  readonly lostServicePlane: number;
  /** Events received, by type. */
  readonly events: Readonly<Record<string, number>>;
  readonly findings: {
    readonly merged: number;
    /** Current number of entries. */
    readonly entries: number;
    readonly gaps: number;
    readonly overflowed: number;
  };
  /** The sinks of findings, by their names in the configuration. */
  readonly sinks: readonly {
    readonly name: string;
    readonly delivered: number;
    readonly failed: number;
    readonly dropped: number;
    readonly waiting: number;
  }[];
};
export type ServicePlaneStats = {
  /** Connections that were decided without reading their requests. */
  readonly allow: number;
  readonly deny: number;
  readonly audit: number;
  readonly intercepted: number;
  /** Requests of intercepted connections. */
  readonly requestsAllow: number;
  readonly requestsDeny: number;
  readonly requestsAudit: number;
  /** Responses that violated the rule that had allowed their request. */
  readonly responsesDeny: number;
  readonly responsesAudit: number;
  /** Current connections. */
  readonly connections: number;
  /** Refused connections and requests by reason; the set of reasons is closed. */
  readonly refused: Readonly<Record<string, number>>;
  /** Why the CA certificates for servers cannot be read; the previous ones stay in use. Null: no fault. */
  readonly upstreamCaFault: string | null;
  /** Why connections cannot be spliced in the kernel. Null: no fault. */
  readonly joinFault: string | null;
};
type ClusterStats = {
  readonly isLeader: boolean;
  readonly leader: string | null;
  readonly members: readonly string[];
  readonly revision: number;
  readonly appliedRevision: number;
  readonly lag: number;
};

/** Counters of the node. A part that does not run is null. */
export type NodeStats = {
  /** The active generation; 0 before the first activation. */
  readonly generation: number;
  readonly dataplane: DataplaneStats | null;
  readonly dns: DnsStats | null;
  readonly servicePlane: ServicePlaneStats | null;
  readonly cluster: ClusterStats | null;
  readonly observer: ObserverStats | null;
};

/** One line of the readiness report (D27). */
export type Check = {
  readonly name: string;
  readonly ok: boolean;
  /** The state of the statechart from which the check is computed. */
  readonly state: string;
  readonly detail: string;
  /** ISO 8601, UTC. */
  readonly since: string;
};
export type ReadinessReport = { readonly ready: boolean; readonly checks: readonly Check[] };
