import { createHash } from 'node:crypto';
import { NFPROTO_BRIDGE, ruleComments } from './nftables.js';

/** Name of the guard's table and chain in family bridge. */
const TABLE = 'weir';
const CHAIN = 'guard';

/**
 * The guard's second table: a frame that came in by a policed interface leaves a bridge by no other port, since no policy judges what a
 * bridge switches. What is for the node, or routed by it, does not come here.
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

/** Whether exactly these rules are in force. */
export function bridgeGuardStands(interfaces: readonly string[]): boolean {
  const expected = interfaces.map(() => commentOf(interfaces));
  return JSON.stringify(ruleComments(TABLE, CHAIN, NFPROTO_BRIDGE)) === JSON.stringify(expected);
}

function commentOf(interfaces: readonly string[]): string {
  return `weir-${createHash('sha256').update(interfaces.join()).digest('hex').slice(0, 12)}`;
}
