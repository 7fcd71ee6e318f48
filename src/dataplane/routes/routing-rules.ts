import type { Family } from '#contracts/policy/policy-model.js';
import { attributesIn, NETLINK_ROUTE, NetlinkSocket, viewOf } from '#libc/netlink.js';
import { AF_INET, AF_INET6 } from '#libc/socket-numbers.js';

const RTM_NEWRULE = 32;
const RTM_GETRULE = 34;
// Offsets of the fields of `struct fib_rule_hdr` and its size, in bytes.
const HEADER = { destinationBits: 1, sourceBits: 2, tos: 3, action: 7, flags: 8, bytes: 12 } as const;
const FRA = {
  incoming: 3,
  goto: 4,
  preference: 6,
  mark: 10,
  tunnel: 12,
  suppressGroup: 13,
  suppressLength: 14,
  table: 15,
  mask: 16,
  outgoing: 17,
  vrf: 19,
  users: 20,
  protocol: 22,
  sourcePorts: 23,
  destinationPorts: 24,
  dscp: 25,
} as const;
/** Netlink attributes by which a routing rule tests more than the packet mark. */
const SELECTORS = [
  ...[FRA.incoming, FRA.outgoing, FRA.tunnel, FRA.vrf, FRA.users, FRA.protocol],
  ...[FRA.sourcePorts, FRA.destinationPorts, FRA.dscp],
];
const FLAG = { inverted: 2, unresolved: 4 } as const;
const NO_LENGTH = 0xffff_ffff;
/**
 * The action for each number `FR_ACT_*` of `linux/fib_rules.h`; every number that is not listed means
 * `refuse`.
 */
const ACTIONS: Readonly<Record<number, RuleAction>> = { 1: 'table', 2: 'goto', 3: 'nothing' };

/** The action of a matching routing rule. `refuse` stands for blackhole, unreachable and prohibit. */
type RuleAction = 'table' | 'goto' | 'nothing' | 'refuse';

/**
 * A routing rule, with only those of its fields that matter for a marked packet that came in by an
 * interface.
 */
export type RoutingRule = {
  readonly preference: number;
  readonly action: RuleAction;
  readonly table: number;
  /** For the action `goto`: the preference of the rule at which the kernel continues. */
  readonly goto: number;
  readonly mark: number;
  readonly mask: number;
  /** True if the rule applies to exactly those packets that do not match its selectors. */
  readonly inverted: boolean;
  /** True if the rule tests only the packet mark, and suppresses no route of its routing table. */
  readonly byMarkAlone: boolean;
  /** Name of the incoming interface that the rule matches; undefined if the rule matches all interfaces. */
  readonly incoming: string | undefined;
  /**
   * True if the rule tests an outgoing interface, a tunnel or a VRF. A packet that came in by an Ethernet
   * interface has none of these, so such a rule does not match the packet.
   */
  readonly forOthers: boolean;
  /** The IP protocol number that the rule matches; undefined if the rule matches all protocols. */
  readonly protocol: number | undefined;
};

/**
 * Returns the routing rules of a family in the calling thread's network namespace, in the order in which the
 * kernel applies them.
 */
export function listRules(family: Family): RoutingRule[] {
  const request = new Uint8Array(HEADER.bytes);
  request[0] = family === 'ipv4' ? AF_INET : AF_INET6;
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    return socket.dump(RTM_GETRULE, RTM_NEWRULE, request).map(ruleIn);
  } finally {
    socket.close();
  }
}

function ruleIn(message: DataView): RoutingRule {
  const attributes = attributesIn(message, HEADER.bytes);
  const flags = message.getUint32(HEADER.flags, true);
  const action = ACTIONS[message.getUint8(HEADER.action)] ?? 'refuse';
  const number = (type: number, absent = 0): number => numberIn(attributes.get(type), absent);
  const has = (type: number): boolean => attributes.has(type);
  const inverted = (flags & FLAG.inverted) !== 0;
  const incoming = attributes.get(FRA.incoming);
  return {
    preference: number(FRA.preference),
    // If the target rule of a `goto` does not exist, the kernel skips the `goto`.
    action: (flags & FLAG.unresolved) === 0 ? action : 'nothing',
    table: number(FRA.table),
    goto: number(FRA.goto),
    mark: number(FRA.mark),
    mask: number(FRA.mask),
    inverted,
    byMarkAlone:
      !inverted &&
      [HEADER.destinationBits, HEADER.sourceBits, HEADER.tos].every((at) => message.getUint8(at) === 0) &&
      !SELECTORS.some(has) &&
      !has(FRA.suppressGroup) &&
      number(FRA.suppressLength, NO_LENGTH) === NO_LENGTH,
    incoming: incoming === undefined ? undefined : Buffer.from(incoming).toString('utf8').replace(/\0$/, ''),
    forOthers: has(FRA.outgoing) || has(FRA.tunnel) || has(FRA.vrf),
    protocol: attributes.get(FRA.protocol)?.[0],
  };
}

function numberIn(bytes: Uint8Array | undefined, absent: number): number {
  return bytes === undefined ? absent : viewOf(bytes).getUint32(0, true);
}
