/** Counters as the kernel keeps them; 64 bits wide. */
type Counter = { readonly packets: bigint; readonly bytes: bigint };

type DataplaneStats = {
  readonly activeFlows: number;
  /** Flows besides whose opening was not answered yet. */
  readonly halfOpenFlows: number;
  /** The last sweep of the flow tables. */
  readonly sweep: { readonly agoMs: number; readonly tookMs: number };
  readonly verdicts: { readonly allow: Counter; readonly deny: Counter; readonly audit: Counter };
  /** Of connections that are inspected: handed to the service plane, and forwarded after it has left them. */
  readonly inspected: { readonly handed: Counter; readonly joined: Counter };
  /** Keyed by the name of the drop reason (D21). */
  readonly drops: Readonly<Record<string, Counter>>;
  /** Passed without a verdict, by `dataplane.non_ipv4`. */
  readonly nonIpv4Passed: Counter;
  readonly flowsOpened: bigint;
  readonly flowsClosed: bigint;
  /** Drop reasons for which the flow table refuses new flows now. */
  readonly refusing: readonly ('flow_table_full' | 'flow_share')[];
  /** Which way the packets that pass go now, and why. */
  readonly forwarding: { readonly way: 'stack' | 'direct'; readonly reason: string };
  /** Whether packets that open a flow go by a copy of the routes. */
  readonly routesCopied: boolean;
  /** Addresses that were not learned because there was no room. */
  readonly grantsRefused: number;
  /** Events that were not sent: the ring was full, or the source had had its share. */
  readonly events: { readonly sent: bigint; readonly lost: bigint; readonly suppressed: bigint };
  readonly maps: Readonly<Record<string, { readonly entries: number; readonly capacity: number }>>;
};

export type DnsStats = {
  readonly queriesAllow: number;
  readonly queriesDeny: number;
  readonly nxdomainPolicy: number;
  readonly nxdomainUpstream: number;
  readonly servfail: number;
  /** Addresses that were granted, once for each pattern. */
  readonly grants: number;
  /** What the last few thousand answers that led to something new waited until that was in force; null before the first. */
  readonly learning: { readonly medianMs: number; readonly p99Ms: number } | null;
  readonly cacheHits: number;
  readonly cacheMisses: number;
  readonly cacheEntries: number;
  readonly cacheBytes: number;
  /** What was not answered or not taken, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  readonly upstreams: readonly {
    readonly address: string;
    readonly alive: boolean;
    readonly queries: number;
    readonly timeouts: number;
    readonly latencyMs: number | null;
  }[];
};
/** What the observer counted since it started. */
export type ObserverStats = {
  /** Clients that read the wiretap now. */
  readonly readers: number;
  /** Given to readers, once for each. */
  readonly messages: number;
  /** What readers did not get: because they were too slow, */
  readonly lostReader: number;
  /** because events were lost on their way from the kernel, */
  readonly lostKernel: number;
  /** because the source had had its share, */
  readonly lostSourceShare: number;
  /** or because the service plane had no room for more. */
  readonly lostServicePlane: number;
  /** Observations taken in, by type. */
  readonly events: Readonly<Record<string, number>>;
  readonly findings: {
    readonly merged: number;
    /** Kept now. */
    readonly entries: number;
    readonly gaps: number;
    readonly overflowed: number;
  };
  /** Whom findings are sent to, by the names of the configuration. */
  readonly sinks: readonly {
    readonly name: string;
    readonly delivered: number;
    readonly failed: number;
    readonly dropped: number;
    readonly waiting: number;
  }[];
};
export type ServicePlaneStats = {
  /** Connections that were decided without their requests. */
  readonly allow: number;
  readonly deny: number;
  readonly audit: number;
  readonly intercepted: number;
  /** Requests of those that were intercepted. */
  readonly requestsAllow: number;
  readonly requestsDeny: number;
  readonly requestsAudit: number;
  /** Responses that broke the rule which let their request pass. */
  readonly responsesDeny: number;
  readonly responsesAudit: number;
  /** Connections now. */
  readonly connections: number;
  /** What was not served, by reason; a closed set of them. */
  readonly refused: Readonly<Record<string, number>>;
  /** What keeps the authorities of servers from being read; those of before count meanwhile. Null: nothing. */
  readonly upstreamCaFault: string | null;
  /** What keeps connections from being left to the datapath. */
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

/** What the node counted so far. A part that is not running is null: it counted nothing. */
export type NodeStats = {
  /** The generation in force; 0 before the first. */
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
  /** The state of the statechart that the check is read from. */
  readonly state: string;
  readonly detail: string;
  /** ISO 8601, UTC. */
  readonly since: string;
};
export type ReadinessReport = { readonly ready: boolean; readonly checks: readonly Check[] };
