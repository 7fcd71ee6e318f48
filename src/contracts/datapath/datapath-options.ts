import { FAMILIES, type Family, type Prefix } from '#contracts/policy/policy-model.js';
import type { PlaneListen } from '#contracts/service-plane/plane-address.js';
import type { FlowState, ReversePath } from './datapath-numbers.js';

/** For each flow state, the time in milliseconds without a packet after which a flow in this state ends. */
export type FlowTimeouts = Readonly<Record<FlowState, number>>;

export type DatapathOptions = {
  /** Names of the interfaces whose traffic Weir polices. A name may end in the wildcard `*`. */
  readonly interfaces: readonly string[];
  /** The action for forwarded IPv6 packets; `enforce`: the policy decides. */
  readonly ipv6: 'drop' | 'pass' | 'enforce';
  /** Names or patterns of the bridge ports behind which IPv6 routers and DHCPv6 servers may be. */
  readonly routerPorts: readonly string[];
  /** The action for frames that are neither IPv4, IPv6 nor ARP, and have no VLAN tag. */
  readonly nonIpv4: 'drop' | 'pass';
  readonly reversePath: ReversePath;
  /**
   * For this many milliseconds after the first activation, the datapath also accepts TCP packets of
   * connections whose SYN it has not seen. This applies only to a new flow table (D18).
   */
  readonly pickupMs: number;
  readonly flowCapacity: number;
  /**
   * The fraction of the flow table that the flows of one source may use when the table is half full. The
   * limit shrinks while the table fills up further. Below half, no limit applies (D18).
   */
  readonly flowShare: number;
  readonly timeoutsMs: FlowTimeouts;
  /**
   * `direct`: the datapath forwards allowed packets without the rest of the network stack. `stack`: the stack
   * forwards all packets. `auto`: `direct`, unless direct forwarding would skip a third-party hook, a
   * netfilter rule or a qdisc.
   */
  readonly forwarding: 'auto' | 'stack' | 'direct';
  /** Whether the datapath also classifies packets to and from the node itself (D17). */
  readonly policeLocal: boolean;
  /**
   * Ranges of service addresses that the node translates (DNAT), at most `MAX_TRANSLATED`. Packets to them
   * are classified only by their destination after translation.
   */
  readonly translated?: readonly Prefix<number>[];
  /** Whether the datapath redirects DNS lookups for any destination address to the DNS proxy. */
  readonly divertDns?: boolean;
  /** Where the service plane (TLS and HTTP inspection) listens; null without a service plane. */
  readonly servicePlane?: PlaneListen | null;
  /** The maximum number of addresses that can match hostname patterns (have a grant) at the same time. */
  readonly grantCapacity: number;
  /**
   * The bits of the packet mark (`skb->mark`) that Weir uses. The guard (Weir's nftables rules) uses the
   * lowest bit of this mask.
   */
  readonly markMask: number;
  /** The folder in a BPF file system where the datapath pins its maps and links. */
  readonly pinPath: string;
  /** For how many source groups the datapath thread keeps separate counts; 0, the default, for none. */
  readonly countedGroups?: number;
  /**
   * The file of nftables commands that drop packets from the next boot until Weir runs (boot guard).
   * `isOpen`: the node forwards packets before the first policy, so the file is empty. Undefined: no file is
   * written.
   */
  readonly bootGuard?: { readonly path: string; readonly isOpen: boolean };
  /**
   * Whether packets pass until the first policy is in force (`policy.fallback: allow`). False if undefined.
   */
  readonly passWithoutPolicy?: boolean;
  /** The maximum size of a compiled policy, in cache lines of 64 bytes. */
  readonly programCapacity: number;
  /** Whether to attach the BPF programs through a clsact qdisc even if the kernel supports TCX. */
  readonly forceClsact?: boolean;
  /**
   * The interval in milliseconds at which the datapath thread checks for the changes that `Datapath.watch`
   * reports. The default is 1000.
   */
  readonly watchIntervalMs?: number;
  /** The path of the compiled BPF object; `dist/bpf/weir.bpf.o` by default. */
  readonly objectPath?: string;
  /** Whether BPF programs look up connections in conntrack. By default they do if the kernel permits it. */
  readonly readsConntrack?: boolean;
};

/** Returns the IP families to which policies apply. */
export function policedFamilies({ ipv6 }: Pick<DatapathOptions, 'ipv6'>): readonly Family[] {
  return ipv6 === 'enforce' ? FAMILIES : ['ipv4'];
}

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
export const MAX_TRANSLATED = 16;
export const DEFAULT_DENY_EVENTS = 100;
export const DEFAULT_FLOW_EVENTS = 1000;

export function matchesInterface(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern));
}
