import { familyOf } from '#addresses/ip-address.js';
import { type Family, ICMP, type Packet, PORT_PROTOCOLS, reversed } from '#contracts/policy/policy-model.js';
import type { Explanation, PacketQuery } from './explain.js';

/** Maps the type of an ICMP reply to the type of its query (RFC 792, RFC 950; RFC 4443, RFC 4620). */
const ICMP_QUERIES: Readonly<Record<Family, ReadonlyMap<number, number>>> = {
  ipv4: new Map([
    [0, 8],
    [14, 13],
    [16, 15],
    [18, 17],
  ]),
  ipv6: new Map([
    [129, 128],
    [140, 139],
  ]),
};

/**
 * Returns the packet that opens the flow in which the packet of the request would be a reply. Returns null if
 * there is no such flow (an ICMP packet that is not a reply), or if a port is unknown.
 */
export function openerOf({ packet, sourcePortAssumed }: PacketQuery): Packet | null {
  const family = familyOf(packet.source);
  const hasPorts = PORT_PROTOCOLS.includes(packet.protocol);
  const icmpType = packet.protocol === ICMP[family] ? ICMP_QUERIES[family].get(packet.icmpType) : packet.icmpType;
  if (icmpType === undefined || (hasPorts && sourcePortAssumed === true)) return null;
  return { ...packet, ...reversed(packet), icmpType };
}

/**
 * Whether the policy denies the packet. A decision by the state of the node does not count; its list of
 * evaluation steps (`walk`) is empty.
 */
export const isDeniedByPolicy = ({ effective_action: action, walk }: Explanation): boolean =>
  action === 'deny' && walk.length > 0;

/**
 * Whether the policy can allow a flow: it allows the first packet, or the decision depends on TLS and HTTP
 * properties that the request omits. A packet that passes without a policy opens no flow.
 */
export const opensFlow = ({ effective_action: action, walk, unknown }: Explanation): boolean =>
  walk.length > 0 && (action === 'allow' || unknown.some((name) => /^(sni$|tls\.|http\.)/.test(name)));
