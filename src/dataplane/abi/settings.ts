import { mask } from '#addresses/ip-address.js';
import { putAddress } from '#addresses/memory-words.js';
import {
  FLOW_STATE,
  FLOW_STATES,
  type FlowState,
  REVERSE_PATH,
  type ReversePath,
  TICK_NS,
} from '#contracts/datapath/datapath-numbers.js';
import { type FlowTimeouts, MAX_TRANSLATED } from '#contracts/datapath/datapath-options.js';
import type { Family, Prefix } from '#contracts/policy/policy-model.js';
import { type PlaneListen, planeAddress } from '#contracts/service-plane/plane-address.js';
import { setShift } from './flow.js';

/**
 * The values of `struct settings` of `bpf/weir.h`: constants of the BPF programs. They cannot change after
 * the loader has loaded the programs.
 */
export type Settings = {
  readonly slotLines: number;
  readonly markMask: number;
  readonly reversePath: ReversePath;
  /**
   * Number of ranks (places of rules and defaults in the order of the policy) for which the map `rank_hits`
   * has an entry, in each of the two program slots.
   */
  readonly rankCapacity: number;
  readonly hitCapacity: number;
  readonly flowCapacity: number;
  /**
   * Fraction of the capacity of the flow table that one source may use when the table is half full. The limit
   * shrinks as the table fills up. 1: no limit.
   */
  readonly flowShare: number;
  /**
   * Seed of the hash that places flows in the flow table. A table that contains flows must keep its seed,
   * because a search with another seed does not find these flows.
   */
  readonly flowSeed: number;
  /**
   * Maximum number of events per second for one source on one CPU: about single packets (`denyEvents`) and
   * about flows (`flowEvents`). The datapath suppresses further events.
   */
  readonly denyEvents: number;
  readonly flowEvents: number;
  readonly timeoutsMs: FlowTimeouts;
  readonly passIpv6: boolean;
  /** Whether policies apply to IPv6, so that the programs of the BPF object of IPv6 handle IPv6 packets. */
  readonly enforcesIpv6?: boolean | undefined;
  readonly passNonIpv4: boolean;
  /** Whether packets pass until the first policy is in force. False if undefined. */
  readonly passWithoutPolicy?: boolean | undefined;
  readonly policeLocal: boolean;
  readonly classifyAll: boolean;
  readonly traceWord: boolean;
  /**
   * Whether the datapath may send allowed packets directly to the next interface, without the network stack.
   */
  readonly direct: boolean;
  /** Flags that the datapath passes to `bpf_fib_lookup`. */
  readonly fibFlags: number;
  /**
   * Whether the datapath searches its copy of the routes (bpf/ipv4/copied_routes.h) before it calls the
   * kernel's route lookup. It does so only while the copy is up to date. Needs Linux 6.2.
   */
  readonly copiesRoutes?: boolean;
  /**
   * Ranges of service addresses, which the node translates (NAT). The datapath decides packets to such an
   * address by the destination after the translation alone.
   */
  readonly translated?: readonly Prefix<number>[];
  /** Whether the kernel has the function `bpf_skb_ct_lookup`, by which the ingress hook reads conntrack. */
  readonly readsConntrack?: boolean;
  /**
   * The times in milliseconds for which conntrack keeps an established TCP connection and UDP flow. Null if
   * the datapath must not translate their packets itself.
   */
  readonly keepMs?: { readonly tcp: number; readonly udp: number } | null;
  /**
   * True for BPF programs that run on the hooks only during an upgrade, while this datapath takes over from
   * its predecessor.
   */
  readonly handsOver?: boolean;
  /** Whether the datapath redirects DNS queries to the DNS proxy, for every destination address. */
  readonly divertDns?: boolean;
  /** Where the service plane accepts connections to inspect; undefined if no service plane runs. */
  readonly servicePlane?: PlaneListen | null | undefined;
};

export const SETTINGS_OFFSETS = {
  slot_lines: 0,
  mark_mask: 4,
  guard_bit: 8,
  exempt_bit: 12,
  nat_bit: 16,
  reverse_path: 20,
  rank_capacity: 24,
  hit_capacity: 28,
  flow_seed: 32,
  deny_events: 36,
  flow_events: 40,
  timeouts: 44,
  plane_address: 108,
  plane_port: 112,
  share_scale: 116,
  translated_prefixes: 120,
  share_from: 124,
  translated: 128,
  pass_non_ipv4: 256,
  police_local: 257,
  classify_all: 258,
  trace_word: 259,
  direct: 260,
  fib_flags: 261,
  hands_over: 262,
  flow_shift: 263,
  divert_dns: 264,
  copies_routes: 265,
  reads_conntrack: 266,
  pass_without_policy: 267,
  pass_ipv6: 268,
  enforces_ipv6: 269,
  keep_tcp_ms: 272,
  keep_udp_ms: 276,
} as const;
export const SETTINGS_BYTES = 280;

/** The difference in bytes between an IPv6 address and an IPv4 address. */
const LONGER = 12;
/** Bytes before `plane_address` in the BPF object of IPv6, where an address is aligned to eight bytes. */
const PADDING = 4;
/** The numbers of addresses in `translated`: an address and a mask for each of 16 prefixes. */
const TRANSLATED_ADDRESSES = 32;

/** Returns the offset that a field of `SETTINGS_OFFSETS` has in the BPF object of IPv6. */
function ipv6Offset(offset: number): number {
  const { plane_address, translated } = SETTINGS_OFFSETS;
  if (offset < plane_address) return offset;
  if (offset === plane_address) return offset + PADDING;
  return offset + PADDING + LONGER * (offset <= translated ? 1 : 1 + TRANSLATED_ADDRESSES);
}

/** Like `SETTINGS_OFFSETS`, for the BPF object of IPv6, which has addresses of 16 bytes. */
export const IPV6_SETTINGS_OFFSETS = Object.fromEntries(
  Object.entries(SETTINGS_OFFSETS).map(([name, offset]) => [name, ipv6Offset(offset)]),
) as Record<keyof typeof SETTINGS_OFFSETS, number>;
export const IPV6_SETTINGS_BYTES = ipv6Offset(SETTINGS_BYTES);

const LAYOUTS: Readonly<Record<Family, { offsets: Record<keyof typeof SETTINGS_OFFSETS, number>; bytes: number }>> = {
  ipv4: { offsets: SETTINGS_OFFSETS, bytes: SETTINGS_BYTES },
  ipv6: { offsets: IPV6_SETTINGS_OFFSETS, bytes: IPV6_SETTINGS_BYTES },
};

/**
 * Returns the lowest bit of the mark mask. The guard (Weir's nftables rules) accepts forwarded packets that
 * have this bit in their mark.
 */
export function guardBit(markMask: number): number {
  return (markMask & -markMask) >>> 0;
}

export function redirectBit(markMask: number): number {
  return guardBit(markMask & ~guardBit(markMask));
}

/**
 * Returns the third-lowest bit of the mark mask; 0 if the mask has no third bit. Weir's own sockets send
 * packets with this mark bit, and the policy does not apply to these packets.
 */
export function exemptBit(markMask: number): number {
  const above = (mask: number): number => (mask & ~guardBit(mask)) >>> 0;
  return guardBit(above(above(markMask)));
}

/**
 * Returns the fourth-lowest bit of the mark mask; 0 if the mask has no fourth bit. The datapath sets this bit
 * on packets whose addresses the node translates (bpf/nat/translation.h).
 */
export function natBit(markMask: number): number {
  return guardBit(markMask & ~guardBit(markMask) & ~redirectBit(markMask) & ~exemptBit(markMask));
}

/**
 * Returns the mark bits of the service plane's sockets to servers. The bit `natBit` of a packet that the node
 * sends means that the packet needs a conntrack entry of its own (guard/upstream-entry.ts).
 */
export function upstreamBits(markMask: number): number {
  return (exemptBit(markMask) | natBit(markMask)) >>> 0;
}

/**
 * Returns the settings in the layout of the BPF object of a family. The object of IPv6 has no translated
 * addresses, because those of `settings` are addresses of IPv4.
 */
export function encodeSettings(settings: Settings, family: Family = 'ipv4'): Uint8Array {
  const { offsets, bytes: size } = LAYOUTS[family];
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  const set = (offset: number, value: number): void => view.setUint32(offset, value, true);
  const flag = (offset: number, value: boolean): void => view.setUint8(offset, value ? 1 : 0);
  set(offsets.slot_lines, settings.slotLines);
  set(offsets.mark_mask, settings.markMask);
  set(offsets.guard_bit, guardBit(settings.markMask));
  set(offsets.exempt_bit, exemptBit(settings.markMask));
  set(offsets.nat_bit, natBit(settings.markMask));
  set(offsets.reverse_path, REVERSE_PATH[settings.reversePath]);
  set(offsets.rank_capacity, settings.rankCapacity);
  set(offsets.hit_capacity, settings.hitCapacity);
  set(offsets.flow_seed, settings.flowSeed);
  set(offsets.deny_events, settings.denyEvents);
  set(offsets.flow_events, settings.flowEvents);
  for (const [name, ms] of Object.entries(settings.timeoutsMs)) {
    const state = FLOW_STATE[name as FlowState];
    if (state >= FLOW_STATES) throw new RangeError(`encode the datapath settings: there is no flow state ${state}`);
    set(offsets.timeouts + 4 * state, Math.ceil((ms * 1e6) / TICK_NS));
  }
  const { servicePlane, translated = [] } = family === 'ipv4' ? settings : { ...settings, translated: [] };
  if (servicePlane != null) {
    putAddress(new Uint32Array(bytes.buffer), offsets.plane_address / 4, planeAddress(servicePlane, family));
    set(offsets.plane_port, servicePlane.port);
  }
  set(offsets.share_scale, Math.round(settings.flowShare * 2 * SHARE_ONE));
  set(offsets.share_from, settings.flowShare >= 1 ? NO_LIMIT : Math.floor(settings.flowCapacity / 2));
  flag(offsets.pass_ipv6, settings.passIpv6);
  flag(offsets.enforces_ipv6, settings.enforcesIpv6 === true);
  flag(offsets.pass_non_ipv4, settings.passNonIpv4);
  flag(offsets.pass_without_policy, settings.passWithoutPolicy === true);
  flag(offsets.police_local, settings.policeLocal);
  flag(offsets.classify_all, settings.classifyAll);
  flag(offsets.trace_word, settings.traceWord);
  flag(offsets.direct, settings.direct);
  view.setUint8(offsets.fib_flags, settings.fibFlags);
  flag(offsets.hands_over, settings.handsOver === true);
  flag(offsets.divert_dns, settings.divertDns ?? false);
  flag(offsets.copies_routes, settings.copiesRoutes ?? false);
  if (translated.length > MAX_TRANSLATED)
    throw new RangeError(
      `encode the datapath settings: ${translated.length} ranges of translated addresses are more than ${MAX_TRANSLATED}`,
    );
  set(offsets.translated_prefixes, translated.length);
  for (const [index, { address, length }] of translated.entries()) {
    set(offsets.translated + 8 * index, address);
    set(offsets.translated + 8 * index + 4, mask(0xffff_ffff, length));
  }
  flag(offsets.reads_conntrack, settings.readsConntrack ?? false);
  set(offsets.keep_tcp_ms, settings.keepMs?.tcp ?? 0);
  set(offsets.keep_udp_ms, settings.keepMs?.udp ?? 0);
  view.setUint8(offsets.flow_shift, setShift(settings.flowCapacity));
  return bytes;
}

const NO_LIMIT = 0xffff_ffff;
/** The number 1 in the fixed-point unit of `share_scale`; must equal `1 << SHARE_SHIFT` of `bpf/weir.h`. */
const SHARE_ONE = 65_536;
