import { formatAddress } from '#addresses/ip-address.js';
import type { ExplainNode, OpenFlow, UnforwardedReason } from '#contracts/policy/explain-facts.js';
import { type Address, IPPROTO, type Mode, type Packet } from '#contracts/policy/policy-model.js';

export const NO_NODE: ExplainNode = {
  granted: [],
  plane: 'inspecting',
  policesNode: false,
  own: [],
  ipv6: 'enforce',
  dataplane: 'running',
  diverts: 'none',
  reversePath: 'off',
  arrival: null,
  flow: null,
  translation: null,
};

/**
 * A decision that the state of the node makes before the policy is evaluated, for example because a flow is
 * open.
 */
export type NodeDecision = {
  readonly decision: 'allow' | 'deny';
  readonly reason: string;
  readonly mode: Mode;
  readonly group: string | null;
  readonly rule: string | null;
  readonly unknown: readonly string[];
};

/**
 * Decides a packet by the state of the node. `ingress` is the interface on which the packet arrives;
 * undefined if it is unknown. Returns null if the policy must decide the packet.
 */
export function decideByNode(packet: Packet, ingress: string | undefined, node: ExplainNode): NodeDecision | null {
  const { source, destination } = packet;
  const isOf = (address: Address) => node.own.includes(address);
  if (ingress !== undefined && node.arrival !== null && !node.arrival.policed.includes(ingress))
    return nodeDecision(
      'allow',
      `packets that arrive on ${ingress} are not policed: dataplane.interfaces does not contain it`,
    );
  if (typeof source === 'bigint' && node.ipv6 !== 'enforce' && !(isOf(source) || isOf(destination)))
    return node.ipv6 === 'pass'
      ? nodeDecision('allow', 'dataplane.ipv6 is pass: forwarded IPv6 passes without a policy')
      : nodeDecision('deny', 'dataplane.ipv6 is drop: forwarded IPv6 is dropped as ipv6 in every mode');
  if (isLoopback(source) || isLoopback(destination)) {
    const block = typeof source === 'number' ? 'in 127.0.0.0/8' : '::1 or in ::ffff:0:0/96';
    return nodeDecision(
      'deny',
      `a packet from the network must not have an address ${block}: it is dropped in every mode`,
    );
  }
  if (isMulticast(source))
    return nodeDecision(
      'deny',
      `${formatAddress(source)} is not a valid source address: the packet is dropped as spoofed_source`,
    );
  const isSent = isOf(source) && ingress === undefined;
  if (!isSent && node.flow?.isCurrent === true) return ofFlow(node.flow);
  const by = node.arrival?.by;
  if (ingress === undefined && typeof by === 'object' && node.arrival?.policed.includes(by.interface) === false) {
    const reason = `the route to the source leads through ${by.interface}, which is not policed: packets that arrive there pass without a policy`;
    return { ...nodeDecision('allow', reason), unknown: ['interface'] };
  }
  const spoofing = isSent ? null : spoofingReason(source, ingress, node);
  if (spoofing !== null) return nodeDecision('deny', `${spoofing}: the packet is dropped as spoofed_source`);
  if (!isSent && !isOf(destination) && isLookup(packet)) {
    if (node.diverts === 'proxy' && typeof source === 'bigint')
      return nodeDecision(
        'deny',
        'dns.transparent diverts DNS queries, and the DNS proxy has no IPv6 address: the packet is dropped as dns_proxy_absent',
      );
    if (node.diverts === 'absent')
      return nodeDecision(
        'deny',
        'dns.transparent diverts DNS queries, and the DNS proxy does not listen: the packet is dropped as dns_proxy_absent',
      );
    if (node.diverts === 'proxy') {
      const reason = 'dns.transparent diverts DNS queries to the DNS proxy, which decides by the name';
      return { ...nodeDecision('allow', reason), unknown: ['query'] };
    }
  }
  if (node.policesNode || !(isOf(source) || isOf(destination))) return null;
  return nodeDecision('allow', 'packets from and to the node are not policed because dataplane.police_local is false');
}

export function decideUnforwarded(reason: UnforwardedReason): NodeDecision {
  switch (reason) {
    case 'canary_name':
      return nodeDecision(
        'deny',
        'dns.canary_names contains this name: the DNS proxy answers it with NXDOMAIN before the policy, in every mode',
      );
    case 'resolver_arpa':
      return nodeDecision(
        'deny',
        'the DNS proxy answers resolver.arpa and the names below it without records before the policy, in every mode',
      );
  }
}

/**
 * Returns sentences about the effects of the node on a packet after the decision of the policy, and the
 * names of properties that are unknown.
 */
export function nodeEffects(packet: Packet, ingress: string | undefined, node: ExplainNode) {
  const { arrival, flow, dataplane, reversePath } = node;
  const isForwarded = !node.own.includes(packet.source);
  const by = arrival?.by ?? 'unknown';
  const isOpen = reversePath === 'strict' ? by === 'unknown' : reversePath === 'loose';
  const lacksInterface = ingress === undefined && isForwarded && arrival !== null && isOpen;
  const reasons = [
    ...(dataplane === 'absent'
      ? ['this node has no dataplane section, so nothing enforces it and the packet passes']
      : []),
    ...(flow === null ? [] : [flow.isSuspended ? SUSPENDED : UNDECIDED]),
  ];
  const unknown = [...(dataplane === 'away' ? ['dataplane'] : []), ...(lacksInterface ? ['interface'] : [])];
  return { reasons, unknown };
}

const UNDECIDED = 'a flow with these addresses and ports is open, and its next packet is classified again';
const SUSPENDED =
  'a flow with these addresses and ports is suspended: a policy denied it after it was open, and it goes on when a policy allows it';

function ofFlow({ isReply, verdict, group, rule }: OpenFlow): NodeDecision {
  const by =
    rule !== null ? `rule ${rule} of source group ${group ?? ''}` : group !== null ? `source group ${group}` : null;
  const decidedBy =
    verdict === null ? 'no policy decided it' : by === null ? 'a default allowed it' : `${by} allowed it`;
  const side = isReply ? 'The packet is a reply in a flow' : 'A flow with these addresses and ports';
  const reason = `${side} that is open: ${decidedBy}, and the packets of an open flow pass without a new decision`;
  return { ...nodeDecision('allow', reason), mode: verdict === 'audit' ? 'audit' : 'enforce', group, rule };
}

function spoofingReason(
  source: Address,
  ingress: string | undefined,
  { reversePath, arrival, own }: ExplainNode,
): string | null {
  if (reversePath === 'off' || arrival === null) return null;
  if (own.includes(source)) return `${formatAddress(source)} is an address of the node`;
  if (arrival.by === 'nowhere') return `no route leads to the source ${formatAddress(source)}`;
  if (reversePath === 'loose' || ingress === undefined || arrival.by === 'unknown') return null;
  const { interface: by } = arrival.by;
  return by === ingress ? null : `packets from ${formatAddress(source)} arrive on ${by}, not on ${ingress}`;
}

const isLookup = ({ protocol, destinationPort }: Packet): boolean =>
  (protocol === IPPROTO.udp || protocol === IPPROTO.tcp) && destinationPort === DNS_PORT;

const nodeDecision = (decision: 'allow' | 'deny', reason: string): NodeDecision => ({
  ...{ decision, reason, mode: 'enforce', group: null, rule: null, unknown: [] },
});

/** Returns whether an address is a loopback address. Must equal `is_loopback` of the datapath. */
const isLoopback = (address: Address): boolean =>
  typeof address === 'number' ? address >>> 24 === LOOPBACK : address === 1n || address >> 32n === MAPPED;
const isMulticast = (source: Address): boolean =>
  typeof source === 'number' ? source >>> 0 >= FIRST_MULTICAST : source >> 120n === MULTICAST || source === 0n;

const LOOPBACK = 127;
const FIRST_MULTICAST = 0xe000_0000;
const MAPPED = 0xffffn;
const MULTICAST = 0xffn;
const DNS_PORT = 53;
