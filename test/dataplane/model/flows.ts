import type { FlowState } from '#contracts/datapath/datapath-numbers.js';
import { type Address, IPPROTO } from '#contracts/policy/policy-model.js';
import type { Headers, IcmpNumbers } from './headers.js';

const [FIN, SYN, RST, ACK] = [1, 2, 4, 16];
type Side = 0 | 1;

export type ModelFlow<A extends Address> = {
  readonly key: string;
  readonly source: A;
  readonly destination: A;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly protocol: number;
  readonly foreign: boolean;
  confirmed: boolean;
  /** Whether a later policy refuses the flow, which passes nothing until a policy allows it. */
  suspended: boolean;
  state: FlowState;
  epoch: number;
  word: number;
  readonly closed: [boolean, boolean];
  resetBy: Side;
  /** For each side, the lower bits of its last acknowledgment number, or `NOT_KNOWN` or `NO_RESET`. */
  readonly acknowledged: [number, number];
  /** For each side, whether it must acknowledge a FIN of the other side by the number in `acknowledged`. */
  readonly awaits: [boolean, boolean];
  readonly packets: [number, number];
  readonly bytes: [number, number];
};

/** The flow key of a packet, whether the packet is an ICMP reply, and the address and port of its sender. */
export type Place = {
  readonly key: string;
  readonly isAnswer: boolean;
  readonly sender: string;
};

/**
 * Returns the flow key of a packet. Returns undefined for a packet that cannot belong to a flow: an ICMP
 * message whose code is not 0, or which is neither a query nor a reply.
 */
export function placeOf(packet: Headers<Address>, icmp: IcmpNumbers): Place | undefined {
  const { protocol, icmpType } = packet;
  let class_ = '';
  let isAnswer = false;
  let ports = [packet.sourcePort, packet.destinationPort];
  if (protocol === icmp.protocol) {
    if (packet.icmpCode !== 0) return undefined;
    isAnswer = icmpType in icmp.queries;
    if (!isAnswer && !(icmpType in icmp.replies)) return undefined;
    const asker = isAnswer ? packet.destination : packet.source;
    // If a host sends an ICMP reply to itself, no other host sent a query. Such a reply belongs to no flow.
    const toItself = packet.source === packet.destination && isAnswer;
    class_ = `${icmp.queries[icmpType] ?? icmpType} by ${toItself ? 'nobody' : asker}`;
    ports = [packet.icmpId, packet.icmpId];
  }
  const sender = `${packet.source}:${ports[0]}`;
  const ends = [sender, `${packet.destination}:${ports[1]}`].sort();
  return { key: `${protocol} ${ends.join(' ')} ${class_}`, isAnswer, sender };
}

export function opensTcp(packet: Headers<Address>): boolean {
  return (packet.tcpFlags & (FIN | SYN | RST | ACK)) === SYN;
}

/**
 * Returns whether the connection of the flow has ended, so that a SYN opens a new connection on the same
 * ports.
 */
export function isOver(flow: ModelFlow<Address>): boolean {
  return flow.state === 'tcp_closing' || flow.state === 'tcp_reset';
}

const NOT_KNOWN = 0;
const NO_RESET = 1;

/** Returns the number that the first packet of a flow acknowledges. */
export function acknowledgedBy(packet: Headers<Address>): number {
  return packet.protocol === IPPROTO.tcp && (packet.tcpFlags & (ACK | RST)) === ACK
    ? lowerBits(packet.acknowledgment)
    : NOT_KNOWN;
}

function lowerBits(number: number): number {
  return Math.max(number & 0x7fff, NO_RESET + 1);
}

/**
 * Returns whether the packet is a RST that does not fit its receiver's last acknowledgment number. Such a
 * RST is dropped, and so is each later one until the receiver sends another packet.
 */
export function isStrayReset(flow: ModelFlow<Address>, packet: Headers<Address>, side: Side): boolean {
  if (packet.protocol !== IPPROTO.tcp || !(packet.tcpFlags & RST)) return false;
  const receiver = otherSide(side);
  const expected = flow.acknowledged[receiver];
  const isKnown = flow.awaits[receiver] || expected !== NOT_KNOWN;
  if (!isKnown || (!flow.awaits[receiver] && expected === lowerBits(packet.sequence))) return false;
  flow.acknowledged[receiver] = NO_RESET;
  flow.awaits[receiver] = false;
  return true;
}

const otherSide = (side: Side): Side => (side === 0 ? 1 : 0);

/** Stores that `receiver` must acknowledge a FIN of the other side by this number. */
function awaitAcknowledgment(flow: ModelFlow<Address>, receiver: Side, number: number): void {
  flow.acknowledged[receiver] = lowerBits(number);
  flow.awaits[receiver] = true;
}

/** Stores the number that a packet acknowledges. A FIN of the other side counts once it is acknowledged. */
function acknowledge(flow: ModelFlow<Address>, packet: Headers<Address>, side: Side): void {
  const number = acknowledgedBy(packet);
  if (flow.awaits[side] && flow.acknowledged[side] !== number) return;
  if (flow.awaits[side]) flow.closed[otherSide(side)] = true;
  flow.awaits[side] = false;
  flow.acknowledged[side] = number;
}

/**
 * Follows a FIN, or data after a FIN, which takes the FIN back. Returns whether the packet is a FIN at the
 * number that its receiver expects.
 */
function followEnd(flow: ModelFlow<Address>, packet: Headers<Address>, side: Side): boolean {
  const receiver = otherSide(side);
  const isFin = (packet.tcpFlags & FIN) !== 0;
  if (flow.closed[side]) {
    if (!flow.confirmed || isFin || packet.data === 0) return false;
    flow.closed[side] = false;
    if (flow.acknowledged[receiver] > NO_RESET) flow.awaits[receiver] = true;
    return false;
  }
  const isExpected = !flow.awaits[receiver] && flow.acknowledged[receiver] === lowerBits(packet.sequence);
  if (isFin) awaitAcknowledgment(flow, receiver, packet.sequence + packet.data + 1);
  return isFin && isExpected;
}

export function openingState(packet: Headers<Address>, icmp: IcmpNumbers): FlowState {
  if (packet.protocol === IPPROTO.tcp) {
    if (packet.tcpFlags & RST) return 'tcp_reset';
    if (packet.tcpFlags & FIN) return 'tcp_half_closed';
    return opensTcp(packet) ? 'tcp_syn_sent' : 'tcp_established';
  }
  if (packet.protocol === IPPROTO.udp || packet.protocol === IPPROTO.udplite) return 'udp_opened';
  return packet.protocol === icmp.protocol ? 'icmp_opened' : 'other_opened';
}

const REPLIED: Readonly<Record<string, FlowState>> = {
  udp_opened: 'udp_replied',
  icmp_opened: 'icmp_replied',
  other_opened: 'other_replied',
};

/** Updates the flow by one packet (D18). Returns whether the packet confirms the flow. */
export function follow(flow: ModelFlow<Address>, packet: Headers<Address>, side: Side): boolean {
  if (packet.protocol !== IPPROTO.tcp) {
    if (flow.confirmed || side === 0) return false;
    flow.state = REPLIED[flow.state] ?? flow.state;
    return true;
  }
  const flags = packet.tcpFlags;
  const isAsked = flow.awaits[side];
  if ((flags & (ACK | RST)) === ACK) acknowledge(flow, packet, side);
  if (flags & RST) {
    if (flow.state === 'tcp_closing') return false;
    flow.state = 'tcp_reset';
    flow.resetBy = side;
    return false;
  }
  const confirms = !flow.confirmed && isConfirmedBy(flow, packet, side);
  if (!flow.confirmed && !confirms) answerSyn(flow, packet, side);
  // A RST was forged if the side that seemed to send the RST sends an ACK afterwards.
  const goesOn = flow.resetBy === side && (flags & (SYN | ACK)) === ACK;
  if (flow.confirmed && flow.state === 'tcp_reset' && goesOn) flow.state = standing(flow);
  const fits = followEnd(flow, packet, side);
  if ((!flow.confirmed && !confirms) || flow.state === 'tcp_reset') return false;
  // A FIN at the expected number half closes the flow at once, until its receiver sends a packet.
  const isLeft = flow.state === 'tcp_half_closed' && !isAsked && flow.awaits[otherSide(side)];
  flow.state = !flow.closed.includes(true) && (fits || isLeft) ? 'tcp_half_closed' : standing(flow);
  return confirms;
}

/**
 * Returns whether the packet confirms an unconfirmed TCP flow. A new connection needs a SYN of each side and
 * the ACK of the opener. A flow that opened in mid-connection needs a packet of each side.
 */
function isConfirmedBy(flow: ModelFlow<Address>, packet: Headers<Address>, side: Side): boolean {
  if (flow.state === 'tcp_established' || flow.state === 'tcp_half_closed') return flow.packets[otherSide(side)] !== 0;
  return flow.state === 'tcp_syn_received' && side === 0 && (packet.tcpFlags & ACK) !== 0;
}

/** Follows the SYN of the side that did not open the flow. The opener acknowledges it by its next packet. */
function answerSyn(flow: ModelFlow<Address>, packet: Headers<Address>, side: Side): void {
  const isOpening = flow.state === 'tcp_syn_sent' || flow.state === 'tcp_reset';
  if (side === 0 || !(packet.tcpFlags & SYN) || !isOpening) return;
  flow.state = 'tcp_syn_received';
  flow.acknowledged[0] = lowerBits(packet.sequence + 1);
  flow.awaits[0] = false;
}

/** Returns the state of an established flow by the FINs that were acknowledged. */
function standing({ closed: [byOpener, byOther] }: ModelFlow<Address>): FlowState {
  if (byOpener && byOther) return 'tcp_closing';
  return byOpener || byOther ? 'tcp_half_closed' : 'tcp_established';
}
