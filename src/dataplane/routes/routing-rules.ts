import { attributesIn, NETLINK_ROUTE, NetlinkSocket, viewOf } from '#libc/netlink.js';

const AF_INET = 2;
const RTM_NEWRULE = 32;
const RTM_GETRULE = 34;
// struct fib_rule_hdr
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
/** Attributes by which a rule matches more than the mark. */
const SELECTORS = [
  ...[FRA.incoming, FRA.outgoing, FRA.tunnel, FRA.vrf, FRA.users, FRA.protocol],
  ...[FRA.sourcePorts, FRA.destinationPorts, FRA.dscp],
];
const FLAG = { inverted: 2, unresolved: 4 } as const;
const NO_LENGTH = 0xffff_ffff;
/** `FR_ACT_*` of linux/fib_rules.h. */
const ACTIONS: Readonly<Record<number, RuleAction>> = { 1: 'table', 2: 'goto', 3: 'nothing' };

/** `refuse`: blackhole, unreachable or prohibit. */
type RuleAction = 'table' | 'goto' | 'nothing' | 'refuse';

/** An IPv4 routing rule, reduced to the fields that matter for marked packets received by an interface. */
export type RoutingRule = {
  readonly preference: number;
  readonly action: RuleAction;
  readonly table: number;
  /** Preference of the target rule of `goto`. */
  readonly goto: number;
  readonly mark: number;
  readonly mask: number;
  /** The rule applies to packets that its selectors do not match. */
  readonly inverted: boolean;
  /** The mark is the only selector, and the rule suppresses no route of the table. */
  readonly byMarkAlone: boolean;
  /** Name of the receiving interface that the rule matches. */
  readonly incoming: string | undefined;
  /**
   * The rule matches an outgoing interface, a tunnel or a VRF, which no packet received by an Ethernet
   * interface has.
   */
  readonly forOthers: boolean;
  /** The protocol that the rule matches. */
  readonly protocol: number | undefined;
};

/** The rules of the calling thread's network namespace, in the order in which the kernel applies them. */
export function listRules(): RoutingRule[] {
  const request = new Uint8Array(HEADER.bytes);
  request[0] = AF_INET;
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
    // A `goto` to a missing rule does nothing.
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
