import { PACKET_CELLS, type ProofSample } from '#contracts/proof-types.js';

/**
 * Offsets in bytes of `struct proof_packet` of `bpf/weir.h`: a packet, and the verdict word that the datapath
 * returns.
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
} as const;
export const PROOF_PACKET_BYTES = 24;
/** Packets that one run classifies. */
export const PROOF_BATCH = 8192;

const CELLS = PROOF_PACKET_BYTES / 4;
const PORTS = PROOF_PACKET.source_port / 4;
const KIND = PROOF_PACKET.protocol / 4;
const WORD = PROOF_PACKET.word / 4;

/**
 * Writes the packets `from` to `to` of a sample in the kernel's layout. The verdict word is set to 0, which
 * no program returns.
 */
export function writeProofPackets(cells: Uint32Array, { packets }: ProofSample, from: number, to: number): void {
  for (let index = from, at = 0; index < to; index++, at += CELLS) {
    const given = index * PACKET_CELLS;
    const ports = packets[given + 2] ?? 0;
    const kind = packets[given + 3] ?? 0;
    cells[at] = packets[given] ?? 0;
    cells[at + 1] = packets[given + 1] ?? 0;
    // Little-endian: the first 16 bits in memory are the low half.
    cells[at + PORTS] = (ports >>> 16) | (ports << 16);
    cells[at + KIND] = (kind >>> 16) | (kind & 0xff00) | ((kind & 255) << 16);
    cells[at + WORD] = 0;
  }
}

export function proofWord(cells: Uint32Array, index: number): number {
  return cells[index * CELLS + WORD] ?? 0;
}
