import { IPPROTO, type Packet, type Policy, reversed } from '#contracts/policy/policy-model.js';
import { compile } from '#policy/compile/compile.js';
import { parseIpv4Address } from '#policy/model/ip-address.js';
import { defaultOnly } from '#test/kernel/policies.js';

const at = (text: string): number => {
  const address = parseIpv4Address(text);
  if (address === undefined) throw new Error(`not an address: ${text}`);
  return address;
};
export const CLIENT = at('10.0.0.1');
export const SERVER = at('10.0.1.2');
export const STRANGER = at('10.0.0.9');

/**
 * A UDP packet from `CLIENT` to `SERVER`. The packets `tcp`, `echo` and `gre` have the same addresses, but
 * another protocol and other ports or an ICMP type.
 */
export const udp: Packet<number> = {
  source: CLIENT,
  destination: SERVER,
  protocol: IPPROTO.udp,
  sourcePort: 40_000,
  destinationPort: 53,
  icmpType: 0,
  icmpCode: 0,
};
export const tcp: Packet<number> = { ...udp, protocol: IPPROTO.tcp, destinationPort: 443 };
export const echo: Packet<number> = { ...udp, protocol: IPPROTO.icmp, sourcePort: 0, destinationPort: 0, icmpType: 8 };
export const gre: Packet<number> = { ...udp, protocol: 47, sourcePort: 0, destinationPort: 0 };

/**
 * Returns `packet` with source and destination swapped; an ICMP echo request becomes an echo reply. Tests
 * send the result as a reply, or as the first packet of a flow in the other direction.
 */
export function back(packet: Packet<number>): Packet<number> {
  return { ...packet, ...reversed(packet), icmpType: packet.icmpType === 8 ? 0 : packet.icmpType };
}

export function icmp(source: number, destination: number, icmpType: number, icmpCode = 0): Packet<number> {
  return { ...echo, source, destination, icmpType, icmpCode };
}

/** Returns a policy that allows all packets from these source addresses and denies all other packets. */
export function onlyFrom(...sources: number[]): Policy {
  return {
    ...defaultOnly('deny'),
    groups: [
      {
        id: 'open',
        pointer: '',
        mode: 'enforce',
        sources: sources.map((address) => ({ address, length: 32 })),
        selectors: [],
        rules: [],
        defaultAction: 'allow',
      },
    ],
  };
}
export const onlyClient = compile(onlyFrom(CLIENT));
