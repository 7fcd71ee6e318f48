import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Address } from '#contracts/policy/policy-model.js';
import type { FlowLayout } from '#dataplane/abi/flow.js';
import { TestRun } from '#libc/bpf/test-run.js';
import type { FlowTest } from './flow-filter.js';
import { LeastFlows } from './least-flows.js';
import type { MappedFlows } from './mapped-flows.js';

/** Number of slots of the flow table that `find` reads between two reads of the clock. */
const PART = 4_096;
const YIELD_MS = 10;
export type FoundFlows = {
  readonly matched: number;
  /** Undecoded flows: each is a `struct flow` followed by its `struct tally`. */
  readonly words: Uint32Array<ArrayBuffer>;
  readonly next: Uint8Array | null;
};

/** The flow table of one IP family, which contains established and half-open flows. */
export class FlowTable {
  readonly #map: () => MappedFlows;
  /**
   * The table in mapped memory while a `find` reads it. A permanent mapping would add the whole table to the
   * resident memory of the process: 32 MiB with the default capacity.
   */
  #lines: MappedFlows | undefined;
  #readers = 0;
  /** `struct cut_request` of `bpf/flow/sweep.h`: the key of the flow to end, and a field `found`. */
  readonly #request: Uint8Array;
  readonly #cut: TestRun;
  #closed = false;

  constructor(
    readonly layout: FlowLayout<Address>,
    map: () => MappedFlows,
    cutFd: number,
  ) {
    this.#map = map;
    this.#request = new Uint8Array(layout.keyBytes + 8);
    this.#cut = new TestRun(cutFd, undefined, this.#request, undefined);
  }

  /**
   * Returns the `limit` matching flows with the lowest keys above the key `after`. Reads every slot of the
   * flow table, and yields to the thread's other tasks every `YIELD_MS` milliseconds.
   */
  async find(test: FlowTest, after: Uint8Array | null, limit: number): Promise<FoundFlows> {
    this.#lines ??= this.#map();
    this.#readers++;
    try {
      return await this.#find(this.#lines, test, new LeastFlows(this.layout, limit, after));
    } finally {
      if (--this.#readers === 0) this.#unmap();
    }
  }

  async #find(lines: MappedFlows, test: FlowTest, least: LeastFlows): Promise<FoundFlows> {
    let matched = 0;
    let began = performance.now();
    const words = new Uint32Array(this.layout.bytes / 4);
    for (let line = 0; line < lines.count; line++) {
      if (lines.read(line, words) && test(words, 0)) {
        matched++;
        least.offer(words, 0);
      }
      if (line % PART !== 0 || performance.now() - began < YIELD_MS) continue;
      await nextTurn();
      if (this.#closed) throw new Error('the datapath was closed while its flows were read');
      began = performance.now();
    }
    return { matched, ...least.page() };
  }

  /** Unmaps the flow table. A pending `find` rejects. */
  close(): void {
    this.#closed = true;
    this.#unmap();
  }

  #unmap(): void {
    this.#lines?.unmap();
    this.#lines = undefined;
  }

  /** Ends these flows in the kernel. Returns the number of flows that still existed. */
  cut({ words }: Pick<FoundFlows, 'words'>): number {
    const { bytes: flowBytes, keyBytes } = this.layout;
    const view = new DataView(this.#request.buffer);
    const bytes = new Uint8Array(words.buffer);
    let ended = 0;
    for (let at = 0; at < bytes.length; at += flowBytes) {
      this.#request.set(bytes.subarray(at, at + keyBytes));
      // The datapath stores 1 in the field `found` if it has ended the flow.
      view.setUint32(keyBytes, 0, true);
      this.#cut.run();
      ended += view.getUint32(keyBytes, true);
    }
    return ended;
  }
}
