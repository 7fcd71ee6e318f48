import { setImmediate as nextTurn } from 'node:timers/promises';
import { FLOW_BYTES, FLOW_KEY_BYTES } from '#dataplane/abi/flow.js';
import { TestRun } from '#libc/test-run.js';
import type { FlowTest } from './flow-filter.js';
import { LeastFlows } from './least-flows.js';
import type { MappedFlows } from './mapped-flows.js';

/** Slots that are read between two looks at the clock. */
const PART = 4_096;
const TURN_MS = 10;
/** struct cut_request */
const CUT_REQUEST = { found: FLOW_KEY_BYTES, bytes: FLOW_KEY_BYTES + 8 } as const;

export type FoundFlows = {
  readonly matched: number;
  /** Flows, each followed by its tally. */
  readonly words: Uint32Array<ArrayBuffer>;
  readonly next: Uint8Array | null;
};

/** The flow table in the kernel: established and half-open flows. */
export class FlowTable {
  readonly #lines: MappedFlows;
  readonly #request = new Uint8Array(CUT_REQUEST.bytes);
  readonly #cut: TestRun;
  #closed = false;

  constructor(lines: MappedFlows, cutFd: number) {
    this.#lines = lines;
    this.#cut = new TestRun(cutFd, undefined, this.#request, undefined);
  }

  /**
   * Returns the matching flows with the lowest keys after `after`. Reads every slot, and yields to other
   * requests every `TURN_MS`.
   */
  async find(test: FlowTest, after: Uint8Array | null, limit: number): Promise<FoundFlows> {
    const least = new LeastFlows(limit, after);
    let matched = 0;
    let began = performance.now();
    const words = new Uint32Array(FLOW_BYTES / 4);
    for (let line = 0; line < this.#lines.count; line++) {
      if (this.#lines.read(line, words) && test(words, 0)) {
        matched++;
        least.offer(words, 0);
      }
      if (line % PART !== 0 || performance.now() - began < TURN_MS) continue;
      await nextTurn();
      if (this.#closed) throw new Error('the datapath was closed while its flows were read');
      began = performance.now();
    }
    return { matched, ...least.taken() };
  }

  /** A `find` that is under way rejects. */
  close(): void {
    this.#closed = true;
    this.#lines.unmap();
  }

  /** Ends these flows. Returns how many of them still existed. */
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
