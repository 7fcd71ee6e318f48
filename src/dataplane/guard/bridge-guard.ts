import { createHash } from 'node:crypto';
import { PRIORITY } from '#contracts/datapath/datapath-numbers.js';
import { anyBit, arrivals, type GuardState, priorityClass } from './guard-rules.js';
import { NFPROTO_BRIDGE, ruleComments } from './nftables.js';

/** Name of the table of the guard (Weir's nftables rules) in the nftables family `bridge`. */
const TABLE = 'weir';
const CHAIN = 'guard';
const FIRST = -2_147_483_648;

/** The input of the bridge rules. `bits`: a bridge may forward a frame that has one of these mark bits. */
export type BridgeRules = Pick<GuardState, 'interfaces' | 'renamed'> & { readonly bits: readonly number[] };

/**
 * Returns the nft commands for the guard's table in the family `bridge`. The bridge sends a frame from a
 * policed interface to another bridge port only if the ingress hook has marked the frame. The rules test
 * `skb->priority` too, which conntrack cannot restore, unlike the mark. Frames that the node receives or
 * routes do not pass the forward hook of a bridge.
 */
export function bridgeGuard(rules: BridgeRules): readonly string[] {
  return [
    `add table bridge ${TABLE}`,
    `add counter bridge ${TABLE} dropped`,
    // Delete an existing chain first: the chain of an earlier build has another priority.
    `add chain bridge ${TABLE} ${CHAIN}`,
    `flush chain bridge ${TABLE} ${CHAIN}`,
    `delete chain bridge ${TABLE} ${CHAIN}`,
    `add chain bridge ${TABLE} ${CHAIN} { type filter hook forward priority ${FIRST}; policy accept; }`,
    ...rulesOf(rules).map((rule) => `add rule bridge ${TABLE} ${CHAIN} ${rule} comment "${commentOf(rules)}"`),
  ];
}

/**
 * Returns whether the bridge table in the kernel has exactly the rules of `bridgeGuard` for these
 * interfaces. Compares the rule comments, which contain a hash of the rules.
 */
export function bridgeGuardStands(rules: BridgeRules): boolean {
  const expected = rulesOf(rules).map(() => commentOf(rules));
  return JSON.stringify(ruleComments(TABLE, CHAIN, NFPROTO_BRIDGE)) === JSON.stringify(expected);
}

function rulesOf({ bits, ...policed }: BridgeRules): string[] {
  return [
    ...bits.map((bit) => `meta priority ${priorityClass(PRIORITY.passed)} ${anyBit(bit)} accept`),
    ...arrivals(policed).map((arrival) => `${arrival} counter name "dropped" drop`),
  ];
}

function commentOf(rules: BridgeRules): string {
  const text = `${FIRST}${rulesOf(rules).join()}`;
  return `weir-${createHash('sha256').update(text).digest('hex').slice(0, 12)}`;
}
