import type { AddressOf, Family, Packet } from '#contracts/policy/policy-model.js';
import { type FrameOptions, quoteOf, writeFrame } from './frame.js';
import { type Ipv6FrameOptions, quoteOfIpv6, writeIpv6Packet } from './ipv6-frame.js';

export type OptionsOf<F extends Family> = F extends 'ipv4' ? FrameOptions : Ipv6FrameOptions;

/** Writes frames of one IP family, and bodies of ICMP errors that quote packets of this family. */
type FamilyFrames<F extends Family> = {
  readonly write: (bytes: Uint8Array, packet: Packet<AddressOf<F>>, options?: OptionsOf<F>) => number;
  readonly quote: (packet: Packet<AddressOf<F>>, options?: OptionsOf<F>, bytes?: number) => Uint8Array;
};

export const FAMILY_FRAMES: { readonly [F in Family]: FamilyFrames<F> } = {
  ipv4: { write: writeFrame, quote: quoteOf },
  ipv6: { write: writeIpv6Packet, quote: quoteOfIpv6 },
};
