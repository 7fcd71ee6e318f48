import { u32At } from '#arrays/read.js';
import { FLOW_KEY_OFFSETS, FLOW_OFFSETS, FLOW_STRUCT_BYTES, KEY_USED } from '#dataplane/abi/flow.js';
import { HIT_REF_BYTES } from '#dataplane/abi/hit.js';
import { completeFlow } from '#dataplane/flows/flow-completion.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import { MappedMemory } from '#libc/mapped-memory.js';

const WORDS = FLOW_STRUCT_BYTES / 4;
/** Maximum number of attempts to copy the statistics of a flow. A flush during a copy makes it invalid. */
const MAX_TRIES = 3;
const USE = FLOW_KEY_OFFSETS.protocol / 4;
const ADDRESSES = FLOW_KEY_OFFSETS.low_address / 4;
const PORTS = FLOW_KEY_OFFSETS.low_port / 4;
const OPENED_NS = FLOW_OFFSETS.opened_ns / 4;
const HIT = FLOW_OFFSETS.hit / 4;

/** The datapath's flow table in mapped memory. BPF programs can change the table during each read. */
export class MappedFlows {
  readonly #flows: MappedMemory;
  readonly #tallies: MappedMemory;
  readonly #ranks: MappedMemory;
  readonly count: number;

  constructor(fds: { readonly flows: number; readonly tallies: number; readonly rankHits: number }) {
    this.count = mapShape(fds.flows).maxEntries;
    const bytes = this.count * FLOW_STRUCT_BYTES;
    const mapped: MappedMemory[] = [];
    const map = (name: string, fd: number, bytes: number): MappedMemory => {
      const memory = new MappedMemory(name, fd, bytes, { readOnly: true });
      mapped.push(memory);
      return memory;
    };
    try {
      this.#flows = map('flows', fds.flows, bytes);
      this.#tallies = map('tallies', fds.tallies, bytes);
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
    const at = line * WORDS;
    const flows = this.#flows.words;
    if (u32At(flows, at + USE) >>> 16 !== KEY_USED) return false;
    for (let word = 0; word < WORDS; word++) into[word] = u32At(flows, at + word);
    for (let tries = 0; tries < MAX_TRIES && !this.#copyTally(at, into); tries++);
    if (![ADDRESSES, ADDRESSES + 1, PORTS, USE].every((word) => flows[at + word] === into[word])) return false;
    // The statistics (`struct tally`) are rarely incomplete here, since the first flush of a flow's counters
    // completes them.
    if (isZero(into, OPENED_NS) || isZero(into, HIT)) {
      completeFlow(new DataView(into.buffer, into.byteOffset), FLOW_OFFSETS, this.#ranks.words);
    }
    return true;
  }

  /** Copies the statistics of a flow at a map word. Returns false if a flush changed them meanwhile. */
  #copyTally(at: number, into: Uint32Array): boolean {
    const tallies = this.#tallies.words;
    for (let word = 0; word < WORDS; word++) into[WORDS + word] = u32At(tallies, at + word);
    for (let word = 0; word < WORDS; word++) if (u32At(tallies, at + word) !== into[WORDS + word]) return false;
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
