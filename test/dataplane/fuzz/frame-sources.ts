import type { AddressOf, Family, Packet, Policy } from '#contracts/policy/policy-model.js';
import { ipv6PacketGenerator, packetGenerator } from '#test/policy/generate.js';
import type { Random } from '#test/seed.js';
import type { OptionsOf } from '../family-frames.js';
import { type FrameOptions, MORE_FRAGMENTS } from '../frame.js';
import {
  type ExtensionHeader,
  fragmentHeader,
  type Ipv6FrameOptions,
  NEXT,
  optionHeader,
  routingHeader,
} from '../ipv6-frame.js';

/** The parts of the random frames of `makeSequence` that differ between the IP families. */
export type FrameSource<F extends Family> = {
  readonly family: F;
  /** The families of the prefixes in the policies. */
  readonly policyFamilies: readonly Family[];
  readonly packets: (random: Random, policy: Policy) => () => Packet<AddressOf<F>>;
  readonly anyAddress: (random: Random) => AddressOf<F>;
  /** Returns an address that the datapath treats specially. */
  readonly specialAddress: (random: Random) => AddressOf<F>;
  readonly withFlippedBit: (random: Random, address: AddressOf<F>) => AddressOf<F>;
  /** ICMP types of queries, and of errors and messages that could be taken for errors. */
  readonly queries: readonly number[];
  readonly errors: readonly number[];
  readonly etherTypes: readonly number[];
  /** Options of the IP header of a packet, of a fragment in addition, and of an ICMP error and its quote. */
  readonly headerOptions: (random: Random) => OptionsOf<F>;
  readonly fragmentOptions: (random: Random, unit: number) => OptionsOf<F>;
  readonly errorOptions: (random: Random) => OptionsOf<F>;
  /** The probability of a frame with a packet between the hosts of a link. */
  readonly ofLink: number;
  /**
   * `mutate` flips bits of the frame bytes before `flippedBytes`, or writes one of `values` at an offset of
   * `fields`.
   */
  readonly flippedBytes: number;
  readonly fields: readonly number[];
  readonly values: readonly number[];
};

const ETHER_TYPES = [0x0806, 0x8100, 0x88a8, 0x9100, 0x9200, 0x9300, 0x0004, 0x05ff, 0x8864, 0x8847, 0x0801];

export const FRAME_SOURCES: { readonly [F in Family]: FrameSource<F> } = {
  ipv4: {
    family: 'ipv4',
    policyFamilies: ['ipv4'],
    packets: packetGenerator,
    anyAddress: (random) => random.word(),
    specialAddress: (random) => 0x7f00_0000 + random.below(4),
    withFlippedBit: (random, address) => (address ^ (1 << random.below(32))) >>> 0,
    queries: [8, 8, 8, 13, 15, 17],
    errors: [3, 3, 3, 4, 5, 11, 12],
    etherTypes: [...ETHER_TYPES, 0x86dd],
    headerOptions: ipv4Options,
    fragmentOptions: () => ({}),
    errorOptions: (random) => ({ optionBytes: random.pick([0, 0, 0, 40]) }),
    ofLink: 0.005,
    flippedBytes: 64,
    // The EtherType, the IPv4 header, and the start of its payload.
    fields: [12, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 26, 29, 30, 33, 34, 35, 36, 37, 38, 39, 42, 46, 47, 54],
    values: [0, 1, 4, 5, 6, 8, 17, 20, 28, 40, 60, 64, 69, 127, 128, 255],
  },
  ipv6: {
    family: 'ipv6',
    policyFamilies: ['ipv6', 'ipv6', 'ipv4'],
    packets: ipv6PacketGenerator,
    anyAddress: (random) => [0, 1, 2, 3].reduce((address) => (address << 32n) | BigInt(random.word()), 0n),
    specialAddress: (random) => random.pick(SPECIAL) | BigInt(random.below(4)),
    withFlippedBit: (random, address) => address ^ (1n << BigInt(random.below(128))),
    queries: [128, 128, 128, 139],
    errors: [1, 1, 2, 2, 3, 4, 0, 5, 100, 127, 137],
    etherTypes: ETHER_TYPES,
    headerOptions: ipv6Options,
    fragmentOptions,
    errorOptions: (random) => ({
      ...(random.chance(0.3) ? { extensions: extensionHeaders(random) } : {}),
      ...(random.chance(0.08) ? { fragment: random.pick([0, MORE_FRAGMENTS, 5]), id: 1 } : {}),
    }),
    ofLink: 0.02,
    flippedBytes: 104,
    // The EtherType, the IPv6 header, and the start of its payload.
    fields: [
      ...[12, 14, 15, 16, 18, 19, 20, 20, 20, 21, 22, 23, 29, 37, 38, 39, 45, 52, 53],
      ...[54, 54, 54, 55, 55, 56, 57, 58, 60, 61, 62, 62, 63, 64, 65, 66, 67, 70, 71, 74, 78, 94, 95],
    ],
    values: [0, 1, 2, 4, 6, 8, 17, 40, 41, 43, 44, 50, 51, 58, 59, 60, 64, 96, 127, 128, 129, 132, 135, 137, 139, 255],
  },
};

/**
 * ::, and IPv4-mapped, IPv4-compatible, multicast, link-local, site-local, 6to4, Teredo and NAT64 addresses.
 * `specialAddress` changes the last two bits, so ::1 is one of them.
 */
const SPECIAL = [
  0n,
  0n,
  0xffff_0a01_0200n,
  0xffff_0000_0000n,
  0x0a01_0200n,
  0xff02n << 112n,
  0xff0en << 112n,
  0xfe80n << 112n,
  0xfec0n << 112n,
  0x2002_0a01_0200n << 80n,
  0x2001n << 112n,
  0x64_ff9bn << 96n,
];

function ipv4Options(random: Random): FrameOptions {
  const optionBytes = random.chance(0.08) ? 4 * random.between(1, 10) : 0;
  return {
    optionBytes,
    optionText: random.chance(0.5)
      ? []
      : Array.from({ length: optionBytes }, () => random.pick([0, 1, 2, 3, 4, 7, 68, 131, 137, 148])),
    ...(random.chance(0.02) ? { totalLength: random.below(80) } : {}),
  };
}

/** Numbers of headers that a packet can have in place of its protocol. */
const OTHER_HEADERS = [NEXT.none, NEXT.none, NEXT.esp, NEXT.ah, 0, 4, 41, 43, 44, 60, 135, 139, 140, 253];

function ipv6Options(random: Random): Ipv6FrameOptions {
  return {
    label: random.chance(0.5) ? 0 : random.below(2 ** 28),
    hopLimit: random.pick([64, 64, 64, 255, 1]),
    ...(random.chance(0.2) ? { extensions: extensionHeaders(random) } : {}),
    // A packet that is its only fragment.
    ...(random.chance(0.06) ? { fragment: 0, id: random.word() } : {}),
    ...(random.chance(0.02) ? { nextHeader: random.pick(OTHER_HEADERS) } : {}),
    ...(random.chance(0.02) ? { payloadLength: random.pick([0, random.below(80)]) } : {}),
  };
}

function fragmentOptions(random: Random, unit: number): Ipv6FrameOptions {
  if (unit === 0) return random.chance(0.4) ? { fragmented: extensionHeaders(random) } : {};
  return random.chance(0.3) ? { nextHeader: random.pick([...OTHER_HEADERS, 6, 17, 58]) } : {};
}

/** Most chains that this function returns are valid before a header that is no extension header. */
function extensionHeaders(random: Random): ExtensionHeader[] {
  const count = random.pick([1, 1, 1, 1, 2, 2, 3, 4, 5, 6]);
  return Array.from({ length: count }, (_, index) => {
    const units = random.pick([0, 0, 0, 0, 1, 2, 8]);
    if (index === 0 && random.chance(0.5)) return optionHeader(NEXT.hopByHop, units);
    if (random.chance(0.03)) return routingHeader(random.below(5));
    if (random.chance(0.03)) return optionHeader(NEXT.hopByHop, units);
    if (random.chance(0.03)) return fragmentHeader(0, random.chance(0.2), random.pick([1, 2]));
    // Options whose length is not that of the header.
    if (random.chance(0.03))
      return { ...optionHeader(NEXT.destination), bytes: [0, random.below(256), 0, 0, 0, 0, 0, 0] };
    return optionHeader(NEXT.destination, units);
  });
}
