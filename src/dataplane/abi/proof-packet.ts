import { u32At } from '#arrays/read.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { ADDRESS_CELLS, PACKET_CELLS, type ProofSample } from '#contracts/policy/proof-types.js';

/**
 * Offsets in bytes of the fields of `struct proof_packet` of `bpf/weir.h`. User space writes the packet, and
 * the BPF program `weir_prove` writes the verdict word.
 */
export const PROOF_PACKET = {
  source: 0,
  destination: 4,
  source_port: 8,
  destination_port: 10,
  protocol: 12,
  icmp_type: 13,
  icmp_code: 14,
  word: 16,
  owner: 20,
} as const;
export const PROOF_PACKET_BYTES = 24;
/** Like `PROOF_PACKET`, in the BPF object of IPv6. */
export const IPV6_PROOF_PACKET = {
  source: 0,
  destination: 16,
  source_port: 32,
  destination_port: 34,
  protocol: 36,
  icmp_type: 37,
  icmp_code: 38,
  word: 40,
  owner: 44,
} as const;
export const IPV6_PROOF_PACKET_BYTES = 48;
/** Maximum number of packets that one run of the BPF program `weir_prove` classifies. */
export const PROOF_BATCH = 8192;

const LAYOUTS: Readonly<Record<Family, { offsets: Record<keyof typeof PROOF_PACKET, number>; bytes: number }>> = {
  ipv4: { offsets: PROOF_PACKET, bytes: PROOF_PACKET_BYTES },
  ipv6: { offsets: IPV6_PROOF_PACKET, bytes: IPV6_PROOF_PACKET_BYTES },
};

/** Returns the size in bytes of the map `proof` in the BPF object of a family. */
export function proofBytes(family: Family): number {
  return PROOF_BATCH * LAYOUTS[family].bytes;
}

/**
 * Writes the packets with indexes `from` (inclusive) to `to` (exclusive) of a proof sample (packets that
 * compare the kernel with the reference evaluator) in the layout of `struct proof_packet`. Sets the verdict
 * word to 0, which no policy returns.
 */
export function writeProofPackets(
  cells: Uint32Array,
  { family, packets }: ProofSample,
  from: number,
  to: number,
): void {
  const { offsets, bytes } = LAYOUTS[family];
  const addressCells = ADDRESS_CELLS[family];
  for (let index = from, at = 0; index < to; index++, at += bytes / 4) {
    let given = index * PACKET_CELLS[family];
    // The sample has the highest cell of an address first. The little-endian struct has it last.
    for (let cell = 0; cell < 2 * addressCells; cell++)
      cells[at + (cell ^ (addressCells - 1))] = u32At(packets, given++);
    const ports = u32At(packets, given);
    const kind = u32At(packets, given + 1);
    // A 32-bit cell of the sample has the first of two 16-bit fields in its high half. In the little-endian
    // struct, the first field is the low half.
    cells[at + offsets.source_port / 4] = (ports >>> 16) | (ports << 16);
    cells[at + offsets.protocol / 4] = (kind >>> 16) | (kind & 0xff00) | ((kind & 255) << 16);
    cells[at + offsets.word / 4] = 0;
    cells[at + offsets.owner / 4] = u32At(packets, given + 2);
  }
}

export function proofWord(cells: Uint32Array, index: number, family: Family): number {
  const { offsets, bytes } = LAYOUTS[family];
  return u32At(cells, (index * bytes + offsets.word) / 4);
}
