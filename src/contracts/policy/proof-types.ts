import { u32At } from '#arrays/read.js';
import type { Address, Family, Packet } from './policy-model.js';

/**
 * Packets for the proof, each with the verdict word of the reference evaluator. The datapath classifies
 * these packets. The proof fails if a verdict word differs (B5).
 */
export type ProofSample = {
  /** The IP family of all packets. */
  readonly family: Family;
  /** The packets as 32-bit numbers, `PACKET_CELLS` numbers for each packet. `packetAt` decodes a packet. */
  readonly packets: Uint32Array;
  /**
   * For each packet, the verdict word (rule and verdict as a number) that the reference evaluator computed.
   */
  readonly expected: Uint32Array;
  /** The number of equivalence classes of packets in the policy; null if there are too many to count. */
  readonly classes: number | null;
  /** Whether the sample contains a packet of each equivalence class. */
  readonly complete: boolean;
};

/**
 * The proof samples (test packets with expected verdicts) of a compiled policy: one sample for each IP family
 * that the policy is compiled for.
 */
export type ProofSamples = readonly ProofSample[];

/**
 * Proof samples (packets with expected verdicts), or the promise of samples that are computed while their
 * compiled policy is being staged.
 */
export type SamplesOrPromise = ProofSamples | Promise<ProofSamples>;

/** The result of the proof: the comparison of a staged policy with the reference evaluator. */
export type Proof = {
  /** The number of equivalence classes of all samples; null if those of a sample are too many to count. */
  readonly classes: number | null;
  /** The number of packets of all samples. The datapath returned the expected verdict word for each. */
  readonly checked: number;
  /** Whether each sample contains a packet of each equivalence class. */
  readonly complete: boolean;
};

/**
 * A packet with the verdict words of the reference evaluator (`expected`) and of the datapath (`found`).
 */
export type ProofMismatch = { readonly packet: Packet; readonly expected: number; readonly found: number };

/** The number of 32-bit words of an address; the first word has the highest bits. */
export const ADDRESS_CELLS: Readonly<Record<Family, number>> = { ipv4: 1, ipv6: 4 };

/**
 * The number of 32-bit words of a test packet: source, destination, ports, protocol with ICMP type and code,
 * and owner of the source.
 */
export const PACKET_CELLS: Readonly<Record<Family, number>> = { ipv4: 5, ipv6: 11 };

/**
 * The index of the word that gives the Kubernetes owner of the source: `NO_OWNER_CELL` if it has none, else 1
 * + the index of the set of groups that select the owner (`MemberTables`).
 */
export const OWNER_CELL: Readonly<Record<Family, number>> = { ipv4: 4, ipv6: 10 };
export const NO_OWNER_CELL = 0;

type SamplePackets = Pick<ProofSample, 'family' | 'packets'>;

/** Returns the source of the packet with this index. */
export function sourceAt({ family, packets }: SamplePackets, index: number): Address {
  return addressAt(packets, index * PACKET_CELLS[family], family);
}

export function packetAt({ family, packets }: SamplePackets, index: number): Packet {
  const first = index * PACKET_CELLS[family];
  const cells = ADDRESS_CELLS[family];
  const ports = u32At(packets, first + 2 * cells);
  const kind = u32At(packets, first + 2 * cells + 1);
  return {
    source: addressAt(packets, first, family),
    destination: addressAt(packets, first + cells, family),
    sourcePort: ports >>> 16,
    destinationPort: ports & 0xffff,
    protocol: kind >>> 16,
    icmpType: (kind >>> 8) & 255,
    icmpCode: kind & 255,
  };
}

function addressAt(cells: Uint32Array, first: number, family: Family): Address {
  if (family === 'ipv4') return u32At(cells, first);
  let address = 0n;
  for (let at = 0; at < ADDRESS_CELLS.ipv6; at++) address = (address << 32n) | BigInt(u32At(cells, first + at));
  return address;
}
