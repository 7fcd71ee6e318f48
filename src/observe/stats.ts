import type { DnsStats } from '#contracts/dns-stats.js';
import type { KubernetesStats } from '#contracts/integration-status.js';

/**
 * A packet counter and a byte counter of the datapath. Both values are 64 bits wide, so they need `bigint`.
 */
type Counter = { readonly packets: bigint; readonly bytes: bigint };

type DataplaneStats = {
  readonly activeFlows: number;
  /**
   * The number of active flows that are half open: no packet in the reply direction has confirmed the flow.
   */
  readonly halfOpenFlows: number;
  /**
   * The last sweep, in which a BPF timer removed expired flows from the flow tables. `agoMs`: milliseconds
   * since the sweep ended. `tookMs`: duration of the sweep in milliseconds.
   */
  readonly sweep: { readonly agoMs: number; readonly tookMs: number };
  readonly verdicts: { readonly allow: Counter; readonly deny: Counter; readonly audit: Counter };
  /**
   * Packets of inspected connections. `handed` counts packets that the datapath sent to the service plane.
   * `joined` counts packets that the datapath forwarded itself after the service plane had spliced the
   * connection.
   */
  readonly inspected: { readonly handed: Counter; readonly joined: Counter };
  /** Number of dropped packets, and their bytes, by drop reason (D21). */
  readonly drops: Readonly<Record<string, Counter>>;
  /** Packets that passed without a verdict because `dataplane.non_ipv4` allows them. */
  readonly nonIpv4Passed: Counter;
  /**
   * DNS queries that `dns.transparent` did not divert, because their destination has neither a route nor a
   * socket of the node. The kernel dropped them.
   */
  readonly dnsUnroutable: Counter;
  readonly flowsOpened: bigint;
  readonly flowsClosed: bigint;
  /**
   * Why the datapath refused new flows in the last seconds: the flow table was full, or a source had used up
   * its share of the table. Empty if the datapath refused none.
   */
  readonly refusing: readonly ('flow_table_full' | 'flow_share')[];
  /**
   * `way`: whether passed packets go through the kernel's network stack, or the datapath forwards them
   * directly. `reason`: why.
   */
  readonly forwarding: { readonly way: 'stack' | 'direct'; readonly reason: string };
  /**
   * Whether the datapath routes the first packet of a flow with its own copy of the routing table, and not
   * with a lookup in the kernel.
   */
  readonly routesCopied: boolean;
  /**
   * Number of addresses that the datapath did not grant, since the start of the process, because the grant
   * table was full.
   */
  readonly grantsRefused: number;
  /**
   * Number of events by outcome. `sent`: the BPF programs sent the event. `lost`: the ring buffer was full.
   * `suppressed`: the source of the packet had used up its event budget.
   */
  readonly events: { readonly sent: bigint; readonly lost: bigint; readonly suppressed: bigint };
  readonly maps: Readonly<Record<string, { readonly entries: number; readonly capacity: number }>>;
};

/**
 * Figures of the observer. The counters start at 0 with each observer thread; only `lostReader` counts since
 * the start of the process.
 */
export type ObserverStats = {
  /** Current number of wiretap clients. */
  readonly readers: number;
  /**
   * Number of messages in all wiretap frames that the observer built. A frame for several readers counts
   * once.
   */
  readonly messages: number;
  /** Number of wiretap messages that a reader did not receive because the reader was too slow. */
  readonly lostReader: number;
  /** Number of events lost between the kernel and the observer thread. */
  readonly lostKernel: number;
  /** Number of events suppressed in the kernel because the source had used up its event budget. */
  readonly lostSourceShare: number;
  /** Number of events lost because the event buffer of the service plane was full. */
  readonly lostServicePlane: number;
  /** Number of events received from the kernel, by event type. */
  readonly events: Readonly<Record<string, number>>;
  readonly findings: {
    readonly merged: number;
    /** Current number of stored findings. */
    readonly entries: number;
    readonly gaps: number;
    readonly overflowed: number;
  };
  /** Counters of the deliveries of findings to each sink. `name` is `file` or `webhook`. */
  readonly sinks: readonly {
    readonly name: string;
    readonly delivered: number;
    readonly failed: number;
    readonly dropped: number;
    readonly waiting: number;
  }[];
};
export type ServicePlaneStats = {
  /**
   * `allow`, `deny` and `audit`: number of connections that the service plane decided without reading their
   * HTTP requests, by verdict.
   */
  readonly allow: number;
  readonly deny: number;
  readonly audit: number;
  readonly intercepted: number;
  /** Number of requests in intercepted connections, by verdict. */
  readonly requestsAllow: number;
  readonly requestsDeny: number;
  readonly requestsAudit: number;
  /** Number of responses that violated the rule which had allowed their request, by verdict. */
  readonly responsesDeny: number;
  readonly responsesAudit: number;
  /** Current number of connections of the service plane. */
  readonly connections: number;
  /**
   * Number of connections and requests that the service plane refused for another reason than a rule's
   * verdict, by reason. The reasons are a fixed list.
   */
  readonly refused: Readonly<Record<string, number>>;
  /**
   * Why the CA certificates for servers cannot be read; the service plane continues with the last
   * certificates that it read. Null if there is no fault.
   */
  readonly upstreamCaFault: string | null;
  /**
   * Why the datapath cannot forward spliced connections itself (splicing offload). The node then forwards
   * them through its sockets. Null if there is no fault.
   */
  readonly spliceFault: string | null;
};
export type ClusterStats = {
  readonly isLeader: boolean;
  readonly leader: string | null;
  readonly members: readonly string[];
  readonly revision: number;
  readonly appliedRevision: number;
  readonly lag: number;
  readonly connected: boolean;
  /** Whether etcd contradicts this node, so that the node applies and writes nothing. */
  readonly isContradicted: boolean;
  /** Whether the database of etcd is full. */
  readonly isFull: boolean;
  /** The number of values of etcd that this node cannot read. */
  readonly unreadable: number;
};

/** Counters of the node. The field of a component that does not run is null. */
export type NodeStats = {
  /** The generation of the program in force; 0 before the first activation. */
  readonly generation: number;
  readonly dataplane: DataplaneStats | null;
  readonly dns: DnsStats | null;
  readonly servicePlane: ServicePlaneStats | null;
  readonly kubernetes: KubernetesStats | null;
  readonly cluster: ClusterStats | null;
  readonly observer: ObserverStats | null;
};

/** One check of the readiness report (D27). */
export type Check = {
  readonly name: string;
  readonly ok: boolean;
  /** The name of the statechart state from which the check is computed. */
  readonly state: string;
  readonly detail: string;
  /** When the statechart of the check entered its current state: ISO 8601, UTC. */
  readonly since: string;
};
export type ReadinessReport = { readonly ready: boolean; readonly checks: readonly Check[] };
