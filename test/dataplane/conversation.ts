import { bitsOf, familyOf, parseIpv4Address } from '#addresses/ip-address.js';
import {
  type Address,
  type AddressOf,
  type Family,
  ICMP,
  IPPROTO,
  type Packet,
  type Policy,
  reversed,
} from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { compile } from '#policy/compile/compile.js';
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

/** The packets of this file between two hosts of one IP family, and the address of a third host. */
type Conversation<F extends Family> = {
  readonly client: AddressOf<F>;
  readonly server: AddressOf<F>;
  readonly stranger: AddressOf<F>;
  readonly udp: Packet<AddressOf<F>>;
  readonly tcp: Packet<AddressOf<F>>;
  readonly echo: Packet<AddressOf<F>>;
  readonly gre: Packet<AddressOf<F>>;
};

const SITE = 0x2001_0db8_0000_0000_0000_0000_0000_0000n;
const ofIpv6 = (packet: Packet<number>): Packet<bigint> => ({ ...packet, source: SITE + 1n, destination: SITE + 2n });

export const CONVERSATIONS: { readonly [F in Family]: Conversation<F> } = {
  ipv4: { client: CLIENT, server: SERVER, stranger: STRANGER, udp, tcp, echo, gre },
  ipv6: {
    client: SITE + 1n,
    server: SITE + 2n,
    stranger: SITE + 9n,
    udp: ofIpv6(udp),
    tcp: ofIpv6(tcp),
    echo: { ...ofIpv6(echo), protocol: IPPROTO.icmpv6, icmpType: 128 },
    gre: ofIpv6(gre),
  },
};

/**
 * Returns `packet` with source and destination swapped; an ICMP echo request becomes an echo reply. Tests
 * send the result as a reply, or as the first packet of a flow in the other direction.
 */
export function back<A extends Address>(packet: Packet<A>): Packet<A> {
  const replies = { 8: 0, 128: 129 } as Readonly<Record<number, number>>;
  return { ...packet, ...reversed(packet), icmpType: replies[packet.icmpType] ?? packet.icmpType };
}

export function icmp<A extends Address>(source: A, destination: A, icmpType: number, icmpCode = 0): Packet<A> {
  return { ...echo, source, destination, protocol: ICMP[familyOf(source)], icmpType, icmpCode };
}

/** Returns a policy that allows all packets from these source addresses and denies all other packets. */
export function onlyFrom(...sources: Address[]): Policy {
  return {
    ...defaultOnly('deny'),
    groups: [
      {
        id: 'open',
        pointer: '',
        mode: 'enforce',
        sources: sources.map((address) => ({ address, length: bitsOf(address) })),
        selectors: [],
        rules: [],
        defaultAction: 'allow',
      },
    ],
  };
}
export const onlyClient = compile(onlyFrom(CLIENT));

/** Compiles a policy for packets of both families. */
export function compileForBoth(policy: Policy): Program {
  return compile(policy, { ipv6: true });
}
