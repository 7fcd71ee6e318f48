import { createHash } from 'node:crypto';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { exemptBit, redirectBit } from '#dataplane/abi/settings.js';
import { arrivals, type GuardState } from './guard-rules.js';
import { ruleComments } from './nftables.js';

export const SOURCE_CHAIN = 'sources';
export const IPV6_SOURCE_CHAIN = 'ipv6_sources';

export type SourceCheck = Pick<DatapathOptions, 'markMask' | 'reversePath' | 'policeLocal' | 'ipv6'>;

const DROP = 'counter name "dropped" drop';
/** The nftables expressions for "the source is forged", of which one must hold. */
const FORGED = {
  strict: ['fib saddr . iif oif missing'],
  loose: ['fib saddr oif missing', 'fib saddr type local'],
} as const;

/**
 * Returns the nft commands for a chain of the input hook that drops packets with a forged source address.
 * `rules`: those of `socketSources` or of `ipv6Sources`.
 */
export function sourceGuard(table: string, chain: string, rules: readonly string[]): readonly string[] {
  return [
    `add chain inet ${table} ${chain} { type filter hook input priority filter; policy accept; }`,
    `flush chain inet ${table} ${chain}`,
    ...rules.map((rule) => `add rule inet ${table} ${chain} ${rule} comment "${commentOf(rules)}"`),
  ];
}

/**
 * Returns whether a chain in the kernel has exactly these rules. Compares the rule comments, which contain a
 * hash of the rules.
 */
export function sourceGuardStands(table: string, chain: string, rules: readonly string[]): boolean {
  return JSON.stringify(ruleComments(table, chain)) === JSON.stringify(rules.map(() => commentOf(rules)));
}

/** Packets of a family whose source is checked. A link-local or unspecified source has no route. */
const CHECKED = {
  ipv4: 'meta nfproto ipv4',
  ipv6: 'meta nfproto ipv6 ip6 saddr != { ::, fe80::/10 }',
} as const satisfies Record<Family, string>;

/**
 * Returns the rules for packets to a socket of the DNS proxy or of the service plane. On policed interfaces
 * that forward packets, the ingress hook checks the source. These rules check the source on all other
 * interfaces. With `dataplane.ipv6: enforce` they check IPv6 too, because only then clients reach these
 * sockets by IPv6.
 */
export function socketSources({ markMask, reversePath, ipv6 }: SourceCheck): readonly string[] {
  const exempt = exemptBit(markMask);
  // Add no rule if `reverse_path` is `off`, or if the mark mask has no bit for these sockets. The kernel
  // itself still drops impossible sources such as 127.0.0.1.
  if (exempt === 0 || reversePath === 'off') return [];
  const families: readonly Family[] = ipv6 === 'enforce' ? ['ipv4', 'ipv6'] : ['ipv4'];
  return [
    // These two rules accept packets before the source check. The ingress hook has already checked the
    // source of a packet with the redirect bit. A packet on the interface `lo` comes from the node itself,
    // so its source is not forged.
    `meta mark & ${redirectBit(markMask)} != 0 accept`,
    'iif lo accept',
    ...families.flatMap((family) => {
      const own = `${CHECKED[family]} meta l4proto { tcp, udp } socket mark & ${exempt} != 0`;
      return FORGED[reversePath].map((forged) => `${own} ${forged} ${DROP}`);
    }),
  ];
}

/**
 * Returns the rules for IPv6 packets to the node from a policed interface, if `police_local` is set. The
 * ingress hook finds no route on an interface that does not forward, and Linux has no `rp_filter` for IPv6.
 */
export function ipv6Sources(
  { reversePath, policeLocal, ipv6 }: SourceCheck,
  state: Pick<GuardState, 'interfaces' | 'renamed'>,
): readonly string[] {
  if (!policeLocal || ipv6 !== 'enforce' || reversePath === 'off') return [];
  return arrivals(state).flatMap((arrival) =>
    FORGED[reversePath].map((forged) => `${arrival} ${CHECKED.ipv6} ${forged} ${DROP}`),
  );
}

function commentOf(rules: readonly string[]): string {
  return `weir-${createHash('sha256').update(rules.join()).digest('hex').slice(0, 12)}`;
}
