import { type Address, type AddressOf, type Family, IPPROTO } from '#contracts/policy/policy-model.js';
import { type DropReason, type Headers, type IcmpNumbers, readHeaders, readQuoted } from './headers.js';
import { isDiscovery, readIpv6Headers, readIpv6Quoted } from './ipv6-headers.js';

/** The parts of the model of the datapath that differ between the IP families. */
export type FamilyModel<A extends Address> = {
  readonly etherType: number;
  readonly icmp: IcmpNumbers;
  /**
   * Whether the fragments of a datagram have its protocol, which then is a part of the identity of the
   * datagram.
   */
  readonly hasProtocolInFragments: boolean;
  /** Parses a frame of `length` bytes. `merged`: the frame has merged segments. */
  readonly readHeaders: (frame: DataView, length: number, merged: boolean) => Headers<A> | DropReason;
  /** Returns the packet that an ICMP error quotes; undefined if the quote is too short or invalid. */
  readonly readQuoted: (frame: DataView, error: Headers<A>) => Headers<A> | undefined;
  readonly isLoopback: (address: A) => boolean;
  /** Whether a frame of this family passes between the node and its links before any policy. */
  readonly isOfLink: (frame: DataView, length: number) => boolean;
};

export const FAMILY_MODELS: { readonly [F in Family]: FamilyModel<AddressOf<F>> } = {
  ipv4: {
    etherType: 0x0800,
    icmp: {
      protocol: IPPROTO.icmp,
      replies: { 8: 0, 13: 14, 15: 16, 17: 18 },
      queries: { 0: 8, 14: 13, 16: 15, 18: 17 },
      errors: [3, 4, 11, 12],
      redirect: 5,
    },
    hasProtocolInFragments: true,
    readHeaders,
    readQuoted,
    isLoopback: (address) => address >>> 24 === 127,
    isOfLink: () => false,
  },
  ipv6: {
    etherType: 0x86dd,
    icmp: {
      protocol: IPPROTO.icmpv6,
      replies: { 128: 129, 139: 140 },
      queries: { 129: 128, 140: 139 },
      errors: [1, 2, 3, 4],
      redirect: 137,
    },
    hasProtocolInFragments: false,
    readHeaders: readIpv6Headers,
    readQuoted: readIpv6Quoted,
    // ::1, and IPv4 addresses in the form of IPv6 (::ffff:0:0/96).
    isLoopback: (address) => address === 1n || address >> 32n === 0xffffn,
    isOfLink: isDiscovery,
  },
};
