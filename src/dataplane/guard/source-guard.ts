import { createHash } from 'node:crypto';
import type { ReversePath } from '#contracts/datapath-numbers.js';
import { exemptBit, redirectBit } from '#dataplane/abi/settings.js';
import { ruleComments } from './nftables.js';

export const SOURCE_CHAIN = 'sources';

export type SourceCheck = { readonly markMask: number; readonly reversePath: ReversePath };

/**
 * The chain that drops packets with a forged source before they reach the sockets of the DNS proxy and of the
 * service plane. The ingress hook checks policed interfaces that forward; this chain checks all other
 * interfaces.
 */
export function sourceGuard(table: string, check: SourceCheck): readonly string[] {
  const comment = commentOf(check);
  return [
    `add chain inet ${table} ${SOURCE_CHAIN} { type filter hook input priority filter; policy accept; }`,
    `flush chain inet ${table} ${SOURCE_CHAIN}`,
    ...rulesFor(check).map((rule) => `add rule inet ${table} ${SOURCE_CHAIN} ${rule} comment "${comment}"`),
  ];
}

/** Whether exactly these rules are in force. */
export function sourceGuardStands(table: string, check: SourceCheck): boolean {
  const expected = rulesFor(check).map(() => commentOf(check));
  return JSON.stringify(ruleComments(table, SOURCE_CHAIN)) === JSON.stringify(expected);
}

function rulesFor({ markMask, reversePath }: SourceCheck): readonly string[] {
  const exempt = exemptBit(markMask);
  // With `off` only the stack's own check of impossible sources remains.
  if (exempt === 0 || reversePath === 'off') return [];
  const own = `meta nfproto ipv4 meta l4proto { tcp, udp } socket mark & ${exempt} != 0`;
  const drop = 'counter name "dropped" drop';
  return [
    // The hook has checked the source of redirected packets, and packets that the node sends to itself are
    // not forged.
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
