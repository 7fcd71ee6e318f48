import { createHash } from 'node:crypto';
import { NFPROTO_BRIDGE, ruleComments } from './nftables.js';

/** Name of the table of the guard (Weir's nftables rules) in the nftables family `bridge`. */
const TABLE = 'weir';
const CHAIN = 'guard';

/**
 * Returns the nft commands for the guard's table in the family `bridge`. The table drops a frame from a
 * policed interface that a bridge would send to another bridge port, because Weir does not classify switched
 * frames. Frames that the node receives or routes do not pass the forward hook of a bridge.
 */
export function bridgeGuard(interfaces: readonly string[]): readonly string[] {
  return [
    `add table bridge ${TABLE}`,
    `add counter bridge ${TABLE} dropped`,
    `add chain bridge ${TABLE} ${CHAIN} { type filter hook forward priority filter; policy accept; }`,
    `flush chain bridge ${TABLE} ${CHAIN}`,
    ...interfaces.map(
      (name) =>
        `add rule bridge ${TABLE} ${CHAIN} iifname "${name}" counter name "dropped" drop comment "${commentOf(interfaces)}"`,
    ),
  ];
}

/**
 * Returns whether the bridge table in the kernel has exactly the rules of `bridgeGuard` for these
 * interfaces. Compares the rule comments, which contain a hash of the interface names.
 */
export function bridgeGuardStands(interfaces: readonly string[]): boolean {
  const expected = interfaces.map(() => commentOf(interfaces));
  return JSON.stringify(ruleComments(TABLE, CHAIN, NFPROTO_BRIDGE)) === JSON.stringify(expected);
}

function commentOf(interfaces: readonly string[]): string {
  return `weir-${createHash('sha256').update(interfaces.join()).digest('hex').slice(0, 12)}`;
}
