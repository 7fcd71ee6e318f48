import type { FlowState, ReversePath } from './datapath-numbers.js';

/** How long a flow stays in a state without a packet, in milliseconds. */
export type FlowTimeouts = Readonly<Record<FlowState, number>>;

export type DatapathOptions = {
  /** Names of policed interfaces. A name may end in `*`. */
  readonly interfaces: readonly string[];
  readonly nonIpv4: 'drop' | 'pass';
  readonly reversePath: ReversePath;
  /**
   * How long established TCP connections are picked up after the first activation on a new flow table (D18).
   */
  readonly pickupMs: number;
  readonly flowCapacity: number;
  /** The share of the flow table that one source may use while the table is more than half full (D18). */
  readonly flowShare: number;
  readonly timeoutsMs: FlowTimeouts;
  /**
   * `direct`: allowed packets are sent at once and skip the rest of the network stack. `auto`: `direct` as
   * long as no third-party hook, netfilter rule or qdisc would be skipped.
   */
  readonly forwarding: 'auto' | 'stack' | 'direct';
  /** Whether packets to and from the node itself are classified too (D17). */
  readonly policeLocal: boolean;
  /** Whether lookups are handed to the DNS proxy, whatever their destination address is. */
  readonly divertDns?: boolean;
  /** The address and port of the service plane; null if there is none. */
  readonly servicePlane?: { readonly address: number; readonly port: number } | null;
  /** The number of addresses that can be granted at the same time. */
  readonly grantCapacity: number;
  /** The lowest bit belongs to the guard. */
  readonly markMask: number;
  /** A folder in a BPF file system. */
  readonly pinPath: string;
  /** The number of 64-byte cache lines that a policy may use. */
  readonly programCapacity: number;
  /** Attach by clsact even if the kernel has TCX. */
  readonly forceClsact?: boolean;
  /** The interval at which `watch` polls; 1000 by default. */
  readonly watchIntervalMs?: number;
  /** The compiled object; `dist/bpf/weir.bpf.o` by default. */
  readonly objectPath?: string;
};

export const DEFAULT_TIMEOUTS_MS: FlowTimeouts = {
  tcp_syn_sent: 60_000,
  tcp_syn_received: 60_000,
  tcp_established: 10_800_000,
  tcp_half_closed: 600_000,
  tcp_closing: 10_000,
  tcp_reset: 10_000,
  udp_opened: 30_000,
  udp_replied: 180_000,
  icmp_opened: 30_000,
  icmp_replied: 30_000,
  other_opened: 600_000,
  other_replied: 600_000,
};
export const DEFAULT_DENY_EVENTS = 100;
export const DEFAULT_FLOW_EVENTS = 1000;

export function matchesInterface(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern));
}
