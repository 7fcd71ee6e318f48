import { u32At } from '#arrays/read.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { type ProofMismatch, type ProofSample, packetAt } from '#contracts/policy/proof-types.js';
import { type Slot, wordOf } from '#dataplane/abi/active-word.js';
import { PROOF_BATCH, proofBytes, proofWord, writeProofPackets } from '#dataplane/abi/proof-packet.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { MappedMemory } from '#libc/mapped-memory.js';

/**
 * Classifies the packets of a proof sample in the kernel, by the compiled policy in one program slot. A proof
 * compares the verdict words with those of the reference evaluator.
 */
export class Prover {
  readonly #family: Family;
  readonly #memory: MappedMemory;
  readonly #request = new Uint8Array(8);
  readonly #run: TestRun;

  constructor(object: BpfObject) {
    this.#family = object.family;
    this.#memory = new MappedMemory('proof', object.mapFd('proof'), proofBytes(object.family));
    this.#run = new TestRun(object.programFd('weir_prove'), undefined, this.#request, undefined);
  }

  /**
   * Returns the first packet for which the BPF program `weir_prove` computes another verdict word than the
   * sample expects; null if all verdict words match. The packets must be of the family of the BPF object.
   * Calls `yieldToRequests` before each batch, so that the caller can serve other requests.
   */
  mismatch(sample: ProofSample, slot: Slot, yieldToRequests?: () => void): ProofMismatch | null {
    const request = new DataView(this.#request.buffer);
    const { words: cells } = this.#memory;
    const { expected, family } = sample;
    if (family !== this.#family)
      throw new Error(
        `classify packets to prove a policy program: the BPF object of ${this.#family} got ${family} packets`,
      );
    for (let from = 0; from < expected.length; from += PROOF_BATCH) {
      yieldToRequests?.();
      const count = Math.min(PROOF_BATCH, expected.length - from);
      writeProofPackets(cells, sample, from, from + count);
      request.setUint32(0, wordOf(0, slot), true);
      request.setUint32(4, count, true);
      if (this.#run.run() !== 0)
        throw new Error(`classify ${count} packets to prove a policy program: the BPF program did not classify all`);
      for (let index = 0; index < count; index++) {
        const found = proofWord(cells, index, family);
        const wanted = u32At(expected, from + index);
        if (found !== wanted) return { packet: packetAt(sample, from + index), expected: wanted, found };
      }
    }
    return null;
  }

  unmap(): void {
    this.#memory.unmap();
  }
}
