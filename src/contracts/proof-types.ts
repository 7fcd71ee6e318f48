import type { Packet } from './policy-model.js';

/**
 * Packets, each with the verdict word of the reference evaluator. A compiled policy is checked against them
 * (B5).
 */
export type ProofSample = {
  /** `PACKET_CELLS` cells for each packet; see `packetAt`. */
  readonly packets: Uint32Array;
  /** The word of each packet. */
  readonly expected: Uint32Array;
  /** Number of equivalence classes of the policy; null if there are too many to count. */
  readonly classes: number | null;
  /** Whether the sample has a packet of every class. */
  readonly complete: boolean;
};

/** A sample, or the promise of one that is computed while its program is staged. */
export type SampleOrPromise = ProofSample | Promise<ProofSample>;

/** The result of the check before a program came into force. */
export type Proof = {
  readonly classes: number | null;
  /** Number of packets that the datapath decided as the policy says. */
  readonly checked: number;
  readonly complete: boolean;
};

/** A packet that the datapath decides differently from the policy. Both are verdict words. */
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
