import { createHash } from 'node:crypto';
import { NFPROTO_BRIDGE, ruleComments } from './nftables.js';

/** Name of the guard's table in family bridge. */
const TABLE = 'weir';
const CHAIN = 'guard';

/**
 * The guard's second table: drops a frame that came in by a policed interface before a bridge sends it out by
 * another port, since no policy applies to switched frames. Frames for the node, or routed by it, do not pass
 * this hook.
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
