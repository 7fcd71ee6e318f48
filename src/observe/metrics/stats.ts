import type { DatapathStats } from '#contracts/datapath/datapath.js';
import type { DnsStats } from '#contracts/dns/dns-stats.js';
import type { KubernetesStats } from '#contracts/kubernetes/integration-status.js';
import type { ServicePlaneStats } from '#contracts/service-plane/service-plane-stats.js';

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
  /**
   * Number of events lost because the event buffer of the service plane (TLS and HTTP inspection) was full.
   */
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
  /** The recorded flows (`flow_history`); 0 if none are recorded. */
  readonly flowHistory: {
    readonly flows: number;
    /** How many of them stand for several flows of one source. */
    readonly folded: number;
    /** Number of events that were not recorded, because their source had used its share. */
    readonly notRecorded: number;
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
export type ClusterStats = {
  readonly isLeader: boolean;
  readonly leader: string | null;
  readonly members: readonly string[];
  readonly revision: number;
  readonly appliedRevision: number;
  readonly lag: number;
  readonly connected: boolean;
  /** Whether etcd lacks data that this node has applied. The node then applies and writes nothing. */
  readonly isContradicted: boolean;
  /** Whether the database of etcd is full. */
  readonly isFull: boolean;
  /** The number of values of etcd that this node cannot read. */
  readonly unreadable: number;
};

/** Counters of the node. The field of a component that does not run is null. */
export type NodeStats = {
  /** The generation (activation number) of the policy in force; 0 before the first activation. */
  readonly generation: number;
  readonly dataplane: DatapathStats | null;
  readonly dns: DnsStats | null;
  readonly servicePlane: ServicePlaneStats | null;
  readonly kubernetes: KubernetesStats | null;
  readonly cluster: ClusterStats | null;
  readonly observer: ObserverStats | null;
};
