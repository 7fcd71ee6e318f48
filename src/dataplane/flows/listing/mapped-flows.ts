import { u32At } from '#arrays/read.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { type FlowLayout, KEY_USED } from '#dataplane/abi/flow.js';
import { HIT_REF_BYTES } from '#dataplane/abi/hit.js';
import { completeFlow } from '#dataplane/flows/flow-completion.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import { MappedMemory } from '#libc/mapped-memory.js';

/** Size of `struct tally`. */
const TALLY_BYTES = 64;
const TALLY_WORDS = TALLY_BYTES / 4;
/** Maximum number of attempts to copy the statistics of a flow. A flush during a copy makes it invalid. */
const MAX_TRIES = 3;

/** The datapath's flow table in mapped memory. BPF programs can change the table during each read. */
export class MappedFlows {
  readonly #flows: MappedMemory;
  readonly #tallies: MappedMemory;
  readonly #ranks: MappedMemory;
  readonly count: number;

  constructor(
    readonly layout: FlowLayout<Address>,
    fds: { readonly flows: number; readonly tallies: number; readonly rankHits: number },
  ) {
    this.count = mapShape(fds.flows).maxEntries;
    const mapped: MappedMemory[] = [];
    const map = (name: string, fd: number, bytes: number): MappedMemory => {
      const memory = new MappedMemory(name, fd, bytes, { readOnly: true });
      mapped.push(memory);
      return memory;
    };
    try {
      this.#flows = map('flows', fds.flows, this.count * layout.structBytes);
      this.#tallies = map('tallies', fds.tallies, this.count * TALLY_BYTES);
      this.#ranks = map('rank_hits', fds.rankHits, mapShape(fds.rankHits).maxEntries * HIT_REF_BYTES);
    } catch (failure) {
      for (const memory of mapped) memory.unmap();
      throw failure;
    }
  }

  /**
   * Copies a flow (`struct flow`) and its statistics (`struct tally`) to `into`. Returns false if the cache
   * line has no flow, or if another flow took it during the copy.
   */
  read(line: number, into: Uint32Array): boolean {
    const { keyBytes, keyOffsets, structBytes, offsets } = this.layout;
    const structWords = structBytes / 4;
    const at = line * structWords;
    const use = keyOffsets.protocol / 4;
    const flows = this.#flows.words;
    if (u32At(flows, at + use) >>> 16 !== KEY_USED) return false;
    for (let word = 0; word < structWords; word++) into[word] = u32At(flows, at + word);
    for (let tries = 0; tries < MAX_TRIES && !this.#copyTally(line * TALLY_WORDS, structWords, into); tries++);
    for (let word = 0; word < keyBytes / 4; word++) if (flows[at + word] !== into[word]) return false;
    // The statistics (`struct tally`) are rarely incomplete here, since the first flush of a flow's counters
    // completes them.
    if (isZero(into, offsets.opened_ns / 4) || isZero(into, offsets.hit / 4)) {
      completeFlow(new DataView(into.buffer, into.byteOffset), offsets, this.#ranks.words);
    }
    return true;
  }

  /**
   * Copies the statistics of a flow at map word `at` to `into`. Returns false if a flush changed them
   * meanwhile.
   */
  #copyTally(at: number, to: number, into: Uint32Array): boolean {
    const tallies = this.#tallies.words;
    for (let word = 0; word < TALLY_WORDS; word++) into[to + word] = u32At(tallies, at + word);
    for (let word = 0; word < TALLY_WORDS; word++) if (u32At(tallies, at + word) !== into[to + word]) return false;
    return true;
  }

  unmap(): void {
    this.#flows.unmap();
    this.#tallies.unmap();
    this.#ranks.unmap();
  }
}

function isZero(words: Uint32Array, at: number): boolean {
  return words[at] === 0 && words[at + 1] === 0;
}
