import { createHash } from 'node:crypto';
import type { ReversePath } from '#contracts/datapath/datapath-numbers.js';
import { exemptBit, redirectBit } from '#dataplane/abi/settings.js';
import { ruleComments } from './nftables.js';

export const SOURCE_CHAIN = 'sources';

export type SourceCheck = { readonly markMask: number; readonly reversePath: ReversePath };

/**
 * Returns the nft commands for the chain `sources`. The chain drops packets with a forged source address
 * before they reach a socket of the DNS proxy or of the service plane. On policed interfaces that forward
 * packets, the ingress hook checks the source. This chain checks the source on all other interfaces.
 */
export function sourceGuard(table: string, check: SourceCheck): readonly string[] {
  const comment = commentOf(check);
  return [
    `add chain inet ${table} ${SOURCE_CHAIN} { type filter hook input priority filter; policy accept; }`,
    `flush chain inet ${table} ${SOURCE_CHAIN}`,
    ...rulesFor(check).map((rule) => `add rule inet ${table} ${SOURCE_CHAIN} ${rule} comment "${comment}"`),
  ];
}

/**
 * Returns whether the chain `sources` in the kernel has exactly the rules of `sourceGuard`. Compares the
 * rule comments, which contain a hash of the rules.
 */
export function sourceGuardStands(table: string, check: SourceCheck): boolean {
  const expected = rulesFor(check).map(() => commentOf(check));
  return JSON.stringify(ruleComments(table, SOURCE_CHAIN)) === JSON.stringify(expected);
}

function rulesFor({ markMask, reversePath }: SourceCheck): readonly string[] {
  const exempt = exemptBit(markMask);
  // Add no rule if `reverse_path` is `off`, or if the mark mask has no bit for these sockets. The kernel
  // itself still drops impossible sources such as 127.0.0.1.
  if (exempt === 0 || reversePath === 'off') return [];
  const own = `meta nfproto ipv4 meta l4proto { tcp, udp } socket mark & ${exempt} != 0`;
  const drop = 'counter name "dropped" drop';
  return [
    // These two rules accept packets before the source check. The ingress hook has already checked the
    // source of a packet with the redirect bit. A packet on the interface `lo` comes from the node itself,
    // so its source is not forged.
    `meta mark & ${redirectBit(markMask)} != 0 accept`,
    'iif lo accept',
    ...(reversePath === 'strict'
      ? [`${own} fib saddr . iif oif missing ${drop}`]
      : [`${own} fib saddr oif missing ${drop}`, `${own} fib saddr type local ${drop}`]),
  ];
}

function commentOf(check: SourceCheck): string {
  return `weir-${createHash('sha256').update(rulesFor(check).join()).digest('hex').slice(0, 12)}`;
}
