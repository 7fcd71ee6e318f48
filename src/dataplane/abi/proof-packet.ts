import { u32At } from '#arrays/read.js';
import { PACKET_CELLS, type ProofSample } from '#contracts/policy/proof-types.js';

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
/** Maximum number of packets that one run of the BPF program `weir_prove` classifies. */
export const PROOF_BATCH = 8192;

const CELLS = PROOF_PACKET_BYTES / 4;
const PORTS = PROOF_PACKET.source_port / 4;
const KIND = PROOF_PACKET.protocol / 4;
const WORD = PROOF_PACKET.word / 4;
const OWNER = PROOF_PACKET.owner / 4;

/**
 * Writes the packets with indexes `from` (inclusive) to `to` (exclusive) of a proof sample (packets that
 * compare the kernel with the reference evaluator) in the layout of `struct proof_packet`. Sets the verdict
 * word to 0, which no policy returns.
 */
export function writeProofPackets(cells: Uint32Array, { packets }: ProofSample, from: number, to: number): void {
  for (let index = from, at = 0; index < to; index++, at += CELLS) {
    const given = index * PACKET_CELLS.ipv4;
    const ports = u32At(packets, given + 2);
    const kind = u32At(packets, given + 3);
    cells[at] = u32At(packets, given);
    cells[at + 1] = u32At(packets, given + 1);
    // A 32-bit cell of the sample has the first of two 16-bit fields in its high half. In the little-endian
    // struct, the first field is the low half.
    cells[at + PORTS] = (ports >>> 16) | (ports << 16);
    cells[at + KIND] = (kind >>> 16) | (kind & 0xff00) | ((kind & 255) << 16);
    cells[at + WORD] = 0;
    cells[at + OWNER] = u32At(packets, given + 4);
  }
}

export function proofWord(cells: Uint32Array, index: number): number {
  return u32At(cells, index * CELLS + WORD);
}
