import { covers } from '#addresses/ip-address.js';
import {
  type Grants,
  IPPROTO,
  icmpOf,
  type Packet,
  PORT_PROTOCOLS,
  type Range,
  type Rule,
} from '#contracts/policy/policy-model.js';

/**
 * The name of a matcher of a rule that does not match a packet. `mismatch` returns the first such matcher.
 */
export type Mismatch =
  | 'destination'
  | 'hostname'
  | 'protocol'
  | 'tls_needs_tcp'
  | 'ports_need_a_protocol_with_ports'
  | 'source_port'
  | 'destination_port'
  | 'icmp_needed'
  | 'icmp_type'
  | 'icmp_code';

/**
 * Returns the first matcher of the rule that does not match the packet, or undefined if the rule matches. A
 * rule with TLS matchers matches only TCP packets. The TLS matchers themselves are ignored, because the
 * service plane evaluates them (D22).
 */
export function mismatch(rule: Rule, packet: Packet, grants: Grants): Mismatch | undefined {
  const { destinations, hostname, protocol, sourcePorts, destinationPorts, icmpTypes, icmpCodes, tls } = rule;
  if (destinations.length > 0 && !destinations.some((prefix) => covers(prefix, packet.destination))) {
    return 'destination';
  }
  if (hostname !== undefined && !grants.has(hostname, packet.destination)) return 'hostname';
  if (protocol !== 'any' && protocol !== packet.protocol) return 'protocol';
  if (tls !== undefined && packet.protocol !== IPPROTO.tcp) return 'tls_needs_tcp';
  if (sourcePorts.length > 0 || destinationPorts.length > 0) {
    if (!PORT_PROTOCOLS.includes(packet.protocol)) return 'ports_need_a_protocol_with_ports';
    if (sourcePorts.length > 0 && !within(sourcePorts, packet.sourcePort)) return 'source_port';
    if (destinationPorts.length > 0 && !within(destinationPorts, packet.destinationPort)) return 'destination_port';
  }
  if (icmpTypes.length > 0 || icmpCodes.length > 0) {
    if (packet.protocol !== icmpOf(rule)) return 'icmp_needed';
    if (icmpTypes.length > 0 && !icmpTypes.includes(packet.icmpType)) return 'icmp_type';
    if (icmpCodes.length > 0 && !icmpCodes.includes(packet.icmpCode)) return 'icmp_code';
  }
  return undefined;
}

function within(ranges: readonly Range[], port: number): boolean {
  return ranges.some(({ low, high }) => low <= port && port <= high);
}
