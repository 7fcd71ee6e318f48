import { setImmediate as nextTurn } from 'node:timers/promises';
import { FLOW_BYTES, FLOW_KEY_BYTES } from '#dataplane/abi/flow.js';
import { TestRun } from '#libc/bpf/test-run.js';
import type { FlowTest } from './flow-filter.js';
import { LeastFlows } from './least-flows.js';
import type { MappedFlows } from './mapped-flows.js';

/** Number of slots of the flow table that `find` reads between two reads of the clock. */
const PART = 4_096;
const YIELD_MS = 10;
/**
 * `found`: offset in bytes of the field `found` in `struct cut_request` of `bpf/flow/sweep.h`; the field
 * becomes 1 if the datapath has ended a flow. `bytes`: size of the struct, which begins with the key of the
 * flow to end.
 */
const CUT_REQUEST = { found: FLOW_KEY_BYTES, bytes: FLOW_KEY_BYTES + 8 } as const;

export type FoundFlows = {
  readonly matched: number;
  /** Undecoded flows: each is a `struct flow` followed by its `struct tally`. */
  readonly words: Uint32Array<ArrayBuffer>;
  readonly next: Uint8Array | null;
};

/** The datapath's flow table, which contains established and half-open flows. */
export class FlowTable {
  readonly #map: () => MappedFlows;
  /**
   * The table in mapped memory while a `find` reads it. A permanent mapping would add the whole table to the
   * resident memory of the process: 32 MiB with the default capacity.
   */
  #lines: MappedFlows | undefined;
  #readers = 0;
  readonly #request = new Uint8Array(CUT_REQUEST.bytes);
  readonly #cut: TestRun;
  #closed = false;

  constructor(map: () => MappedFlows, cutFd: number) {
    this.#map = map;
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
      return await this.#find(this.#lines, test, new LeastFlows(limit, after));
    } finally {
      if (--this.#readers === 0) this.#unmap();
    }
  }

  async #find(lines: MappedFlows, test: FlowTest, least: LeastFlows): Promise<FoundFlows> {
    let matched = 0;
    let began = performance.now();
    const words = new Uint32Array(FLOW_BYTES / 4);
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
  cut({ words }: FoundFlows): number {
    const view = new DataView(this.#request.buffer);
    const bytes = new Uint8Array(words.buffer);
    let ended = 0;
    for (let at = 0; at < bytes.length; at += FLOW_BYTES) {
      this.#request.set(bytes.subarray(at, at + FLOW_KEY_BYTES));
      view.setUint32(CUT_REQUEST.found, 0, true);
      this.#cut.run();
      ended += view.getUint32(CUT_REQUEST.found, true);
    }
    return ended;
  }
}
