import type { FlowState, ReversePath } from './datapath-numbers.js';

/** How long a flow stays in a state without a packet, in milliseconds. */
export type FlowTimeouts = Readonly<Record<FlowState, number>>;

export type DatapathOptions = {
  /** Names of policed interfaces; one may end in `*`. */
  readonly interfaces: readonly string[];
  readonly nonIpv4: 'drop' | 'pass';
  readonly reversePath: ReversePath;
  /** How long TCP in the middle of its life is picked up after the first activation on a new flow table (D18). */
  readonly pickupMs: number;
  readonly flowCapacity: number;
  /** Part of the flow table that one source may have while it is more than half full (D18). */
  readonly flowShare: number;
  readonly timeoutsMs: FlowTimeouts;
  /** `direct`: what passes is sent at once, and sees no more of the stack; `auto`: as long as nobody else has a say in it. */
  readonly forwarding: 'auto' | 'stack' | 'direct';
  /** Whether packets to and from the node itself are judged too (D17). */
  readonly policeLocal: boolean;
  /** Whether lookups are handed to the DNS proxy, whatever server they are for. */
  readonly divertDns?: boolean;
  /** Where the service plane listens; null: there is none. */
  readonly servicePlane?: { readonly address: number; readonly port: number } | null;
  /** Addresses that are learned at once. */
  readonly grantCapacity: number;
  /** Its lowest bit is the guard's. */
  readonly markMask: number;
  /** A folder of a BPF file system. */
  readonly pinPath: string;
  /** Lines of 64 bytes that a policy may take. */
  readonly programCapacity: number;
  /** Attaches by clsact also where the kernel has TCX. */
  readonly forceClsact?: boolean;
  /** How often `watch` looks; 1000 by default. */
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
