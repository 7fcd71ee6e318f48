import { u32At } from '#arrays/read.js';
import type { Packet } from './policy-model.js';

/**
 * Packets for the proof, each with the verdict word of the reference evaluator. The datapath classifies
 * these packets. The proof fails if a verdict word differs (B5).
 */
export type ProofSample = {
  /** The packets as 32-bit numbers, `PACKET_CELLS` numbers for each packet. `packetAt` decodes a packet. */
  readonly packets: Uint32Array;
  /** For each packet, the verdict word of the reference evaluator. */
  readonly expected: Uint32Array;
  /** The number of equivalence classes of packets in the policy; null if there are too many to count. */
  readonly classes: number | null;
  /** Whether the sample contains a packet of each equivalence class. */
  readonly complete: boolean;
};

/**
 * A proof sample (packets with expected verdicts), or the promise of a sample that is computed while its
 * compiled policy is being staged.
 */
export type SampleOrPromise = ProofSample | Promise<ProofSample>;

/** The result of the proof: the comparison of a staged policy with the reference evaluator. */
export type Proof = {
  readonly classes: number | null;
  /** The number of packets for which the datapath returned the expected verdict word. */
  readonly checked: number;
  readonly complete: boolean;
};

/** A packet with the verdict words of the reference evaluator (`expected`) and of the datapath (`found`). */
export type ProofMismatch = { readonly packet: Packet; readonly expected: number; readonly found: number };

export const PACKET_CELLS = 5;

/**
 * The index of the number that gives the owner of the source: `NO_OWNER_CELL` if the source has no owner,
 * else 1 + the index of the set of groups that select the owner (`MemberTables`).
 */
export const OWNER_CELL = 4;
export const NO_OWNER_CELL = 0;

export function packetAt({ packets }: Pick<ProofSample, 'packets'>, index: number): Packet<number> {
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
