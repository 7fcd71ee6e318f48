import type { FlowState } from '#contracts/datapath/datapath-numbers.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import type { Headers } from './headers.js';

const [FIN, SYN, RST, ACK] = [1, 2, 4, 16];
type Side = 0 | 1;

export type ModelFlow = {
  readonly key: string;
  readonly source: number;
  readonly destination: number;
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
  /** Whether the flow is half closed by a FIN, after which its receiver has sent no packet. */
  isLeft: boolean;
  readonly packets: [number, number];
  readonly bytes: [number, number];
};

/** The flow key of a packet, whether the packet is an ICMP reply, and the address and port of its sender. */
export type Place = {
  readonly key: string;
  readonly isAnswer: boolean;
  readonly sender: string;
};

const QUERIES: Readonly<Record<number, number>> = { 8: 0, 13: 14, 15: 16, 17: 18 };
const ANSWERS: Readonly<Record<number, number>> = { 0: 8, 14: 13, 16: 15, 18: 17 };

/**
 * Returns the flow key of a packet. Returns undefined for a packet that cannot belong to a flow: an ICMP
 * message whose code is not 0, or which is neither a query nor a reply.
 */
export function placeOf(packet: Headers): Place | undefined {
  const { protocol, icmpType } = packet;
  let class_ = '';
  let isAnswer = false;
  let ports = [packet.sourcePort, packet.destinationPort];
  if (protocol === IPPROTO.icmp) {
    if (packet.icmpCode !== 0) return undefined;
    isAnswer = icmpType in ANSWERS;
    if (!isAnswer && !(icmpType in QUERIES)) return undefined;
    const asker = isAnswer ? packet.destination : packet.source;
    // If a host sends an ICMP reply to itself, no other host sent a query. Such a reply belongs to no flow.
    const toItself = packet.source === packet.destination && isAnswer;
    class_ = `${ANSWERS[icmpType] ?? icmpType} by ${toItself ? 'nobody' : asker}`;
    ports = [packet.icmpId, packet.icmpId];
  }
  const sender = `${packet.source}:${ports[0]}`;
  const ends = [sender, `${packet.destination}:${ports[1]}`].sort();
  return { key: `${protocol} ${ends.join(' ')} ${class_}`, isAnswer, sender };
}

export function opensTcp(packet: Headers): boolean {
  return (packet.tcpFlags & (FIN | SYN | RST | ACK)) === SYN;
}

/**
 * Returns whether the connection of the flow has ended, so that a SYN opens a new connection on the same
 * ports.
 */
export function isOver(flow: ModelFlow): boolean {
  return flow.state === 'tcp_closing' || flow.state === 'tcp_reset';
}

const NOT_KNOWN = 0;
const NO_RESET = 1;

/** Returns the number that the first packet of a flow acknowledges. */
export function acknowledgedBy(packet: Headers): number {
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
export function isStrayReset(flow: ModelFlow, packet: Headers, side: Side): boolean {
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
function awaitAcknowledgment(flow: ModelFlow, receiver: Side, number: number): void {
  flow.acknowledged[receiver] = lowerBits(number);
  flow.awaits[receiver] = true;
}

/** Stores the number that a packet acknowledges. A FIN of the other side counts once it is acknowledged. */
function acknowledge(flow: ModelFlow, packet: Headers, side: Side): void {
  const number = acknowledgedBy(packet);
  if (flow.awaits[side] && flow.acknowledged[side] !== number) return;
  if (flow.awaits[side]) flow.closed[otherSide(side)] = true;
  flow.awaits[side] = false;
  flow.acknowledged[side] = number;
}

/**
 * Follows a FIN, or data after a FIN, which takes the FIN back. Returns whether the packet is a FIN at the
 * number that its receiver expects. `isAsked`: this side itself had to acknowledge a FIN.
 */
function followEnd(flow: ModelFlow, packet: Headers, side: Side, isAsked: boolean): boolean {
  const receiver = otherSide(side);
  const isFin = (packet.tcpFlags & FIN) !== 0;
  const isExpected = !flow.awaits[receiver] && flow.acknowledged[receiver] === lowerBits(packet.sequence);
  const fits = isFin && !flow.closed[side] && isExpected;
  if (!flow.closed[side]) {
    if (isFin) awaitAcknowledgment(flow, receiver, packet.sequence + packet.data + 1);
  } else if (flow.confirmed && !isFin && packet.data > 0) {
    flow.closed[side] = false;
    if (flow.acknowledged[receiver] > NO_RESET) flow.awaits[receiver] = true;
    flow.isLeft = flow.awaits[receiver] && !isAsked;
  }
  return fits;
}

export function openingState(packet: Headers): FlowState {
  if (packet.protocol === IPPROTO.tcp) {
    if (packet.tcpFlags & RST) return 'tcp_reset';
    if (packet.tcpFlags & FIN) return 'tcp_half_closed';
    return opensTcp(packet) ? 'tcp_syn_sent' : 'tcp_established';
  }
  if (packet.protocol === IPPROTO.udp || packet.protocol === IPPROTO.udplite) return 'udp_opened';
  return packet.protocol === IPPROTO.icmp ? 'icmp_opened' : 'other_opened';
}

const REPLIED: Readonly<Record<string, FlowState>> = {
  udp_opened: 'udp_replied',
  icmp_opened: 'icmp_replied',
  other_opened: 'other_replied',
};

/** Updates the flow by one packet (D18). Returns whether the packet confirms the flow. */
export function follow(flow: ModelFlow, packet: Headers, side: Side): boolean {
  if (packet.protocol !== IPPROTO.tcp) {
    if (flow.confirmed || side === 0) return false;
    flow.state = REPLIED[flow.state] ?? flow.state;
    return true;
  }
  const flags = packet.tcpFlags;
  // An answer of the receiver of a FIN decides whether the FIN counts.
  const isAsked = flow.awaits[side];
  if (isAsked) flow.isLeft = false;
  if ((flags & (ACK | RST)) === ACK) acknowledge(flow, packet, side);
  if (flags & RST) {
    if (flow.state === 'tcp_closing') return false;
    flow.state = 'tcp_reset';
    flow.resetBy = side;
    return false;
  }
  if (followEnd(flow, packet, side, isAsked)) flow.isLeft = true;
  if (!flow.awaits[otherSide(side)]) flow.isLeft = false;
  if (!flow.confirmed) return shakeHands(flow, packet, side);
  // A RST was forged if the side that seemed to send the RST sends an ACK afterwards.
  const goesOn = flow.resetBy === side && (flags & (SYN | ACK)) === ACK;
  if (flow.state !== 'tcp_reset' || goesOn) flow.state = standing(flow);
  return false;
}

/**
 * Updates an unconfirmed TCP flow, and returns whether the packet confirms the flow. A new connection needs
 * a SYN of each side and the ACK of the opener. A flow that opened in mid-connection needs a packet of each
 * side.
 */
function shakeHands(flow: ModelFlow, packet: Headers, side: Side): boolean {
  const { state } = flow;
  const flags = packet.tcpFlags;
  const midLife = state === 'tcp_established' || state === 'tcp_half_closed';
  const confirms = midLife
    ? flow.packets[otherSide(side)] !== 0
    : state === 'tcp_syn_received' && side === 0 && (flags & ACK) !== 0;
  if (confirms) flow.state = standing(flow);
  else if (side === 1 && flags & SYN && (state === 'tcp_syn_sent' || state === 'tcp_reset')) {
    flow.state = 'tcp_syn_received';
    flow.acknowledged[0] = lowerBits(packet.sequence + 1);
    flow.awaits[0] = false;
  }
  return confirms;
}

function standing({ closed: [byOpener, byOther], isLeft }: ModelFlow): FlowState {
  if (byOpener && byOther) return 'tcp_closing';
  return byOpener || byOther || isLeft ? 'tcp_half_closed' : 'tcp_established';
}
