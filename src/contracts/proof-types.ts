import { u32At } from '#arrays/read.js';
import type { Packet } from './policy-model.js';

/**
 * Packets for the proof, each with the verdict word of the reference evaluator. The datapath classifies the
 * packets, and a different verdict word fails the proof (B5).
 */
export type ProofSample = {
  /** The packets as 32-bit numbers, `PACKET_CELLS` numbers for each packet. `packetAt` decodes a packet. */
  readonly packets: Uint32Array;
  /** For each packet, the verdict word of the reference evaluator. */
  readonly expected: Uint32Array;
  /** The number of equivalence classes of the policy; null if they are too many to count. */
  readonly classes: number | null;
  /** Whether the sample contains a packet of every equivalence class. */
  readonly complete: boolean;
};

/** A proof sample, or the promise of a sample that is computed while its program is staged. */
export type SampleOrPromise = ProofSample | Promise<ProofSample>;

/** The result of the proof of a program before its activation. */
export type Proof = {
  readonly classes: number | null;
  /** The number of packets for which the datapath returned the expected verdict word. */
  readonly checked: number;
  readonly complete: boolean;
};

/**
 * A packet for which the datapath and the reference evaluator differ. `expected` and `found` are verdict
 * words.
 */
export type ProofMismatch = { readonly packet: Packet; readonly expected: number; readonly found: number };

export const PACKET_CELLS = 4;

export function packetAt({ packets }: Pick<ProofSample, 'packets'>, index: number): Packet {
  const cell = (at: number): number => u32At(packets, index * PACKET_CELLS + at);
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
