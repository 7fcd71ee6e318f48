import type { Packet } from './policy-model.js';

/** Packets, each with the word that the reference evaluator decides it by: what a compiled policy is checked with (B5). */
export type ProofSample = {
  /** `PACKET_CELLS` cells a packet; see `packetAt`. */
  readonly packets: Uint32Array;
  /** The word of each packet. */
  readonly expected: Uint32Array;
  /** Equivalence classes of the policy; null where there are too many to count. */
  readonly classes: number | null;
  /** Whether a packet of every class is among them. */
  readonly complete: boolean;
};

/** A sample, or what becomes one while its program is staged. */
export type Sampling = ProofSample | Promise<ProofSample>;

/** What was checked before a program came into force. */
export type Proof = {
  readonly classes: number | null;
  /** Packets that were judged by the datapath, and as the policy says. */
  readonly checked: number;
  readonly complete: boolean;
};

/** A packet that the datapath judges otherwise than the policy says. Both are words of a program. */
export type ProofMismatch = { readonly packet: Packet; readonly expected: number; readonly found: number };

export const PACKET_CELLS = 4;

export function packetAt({ packets }: Pick<ProofSample, 'packets'>, index: number): Packet {
  const cell = (at: number): number => packets[index * PACKET_CELLS + at] ?? 0;
  const ports = cell(2);
  const kind = cell(3);
  return {
    source: cell(0),
    destination: cell(1),
    sourcePort: ports >>> 16,
    destinationPort: ports & 0xffff,
    protocol: kind >>> 16,
    icmpType: (kind >>> 8) & 255,
    icmpCode: kind & 255,
  };
}
